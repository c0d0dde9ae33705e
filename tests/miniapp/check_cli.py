# SPDX-License-Identifier: BSD-3-Clause
"""The command line as a user meets it: exit codes, one sentence on standard error, nothing but JSON
where JSON is asked for. Called with the program and a folder to write to."""

import concurrent.futures
import fcntl
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import termios

import programs

PROGRAM, FOLDER = sys.argv[1:]
DECK = pathlib.Path(FOLDER) / "deck.toml"


def call(*arguments, **options):
    return programs.call(PROGRAM, *arguments, cwd=FOLDER, **options)


def refused(*arguments, says):
    programs.refused(call(*arguments), says)


def accepted(*arguments):
    return programs.output_of(call(*arguments))


# What a user may get wrong, and the words of the sentence that says what would be right.
REFUSED = """
                                                    | no verb
rnu x                                               | did you mean "run"
--verbose                                           | --help
plan                                                | DECK
plan missing.toml                                   | cannot be read
plan .                                              | is a folder
plan deck.toml extra                                | extra
plan deck.toml --bogus                              | --bogus
plan deck.toml --ranks 4                            | write --set ranks=VALUE
plan deck.toml --set layers                         | key=value
plan deck.toml --set sqe=3                          | did you mean "seq"
plan deck.toml --set schedule=täwpipe               | "täwpipe"
plan deck.toml --program --set seq=64,128           | --program
plan deck.toml --adapters 0                         | --adapters
plan deck.toml --device-memory many                 | write for example 80G
plan deck.toml --device-memory -1G                  | --device-memory
plan deck.toml --device-memory 3GiBs                | --device-memory
plan deck.toml --device-memory 1e99G                | --device-memory
plan deck.toml --device-memory 80                   | write for example 80G
plan deck.toml --flops 400                          | write for example 400T
run missing.toml                                    | cannot be read
run deck.toml                                       | mpiexec -n 4
run deck.toml --watchdog -1                         | seconds above zero
run deck.toml --interleave=x                        | --interleave
run deck.toml --set                                 | KEY=VALUE
run one.toml --time-limit soon                      | --time-limit
run one.toml --time-limit 90                        | --time-limit
run one.toml --time-limit 1:2:3:4                   | --time-limit
run one.toml --time-limit 0s                        | --time-limit
run one.toml --memory 80                            | 80G
run one.toml -o .                                   | not a file
run one.toml -o missing/x.h5                        | missing/x.h5
verify one.toml --set learning_rate=0.046           | by 1.2 times itself
verify two.toml                                     | by 1.3 times itself
show                                                | FILE
show deck.toml                                      | not a miniTaw result
show missing.h5                                     | cannot be read
show deck.toml --csv --json                         | --csv
help kyes                                           | did you mean "keys"
help tawpip                                         | did you mean "tawpipe"
"""


def check_refusals():
    """Of keys and their values one each: tests/deck has the rest."""
    rows = [
        tuple(part.strip() for part in line.split("|")) for line in REFUSED.strip("\n").splitlines()
    ]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        assert len([*pool.map(lambda row: refused(*row[0].split(), says=row[1]), rows)]) > 30
    refused("plan", PROGRAM, says="deck")


def check_memory_of_verify():
    """Of four models at most, rank 0 keeps the gradients of the first and the last step."""

    def needed(micro_batches, steps=3):
        keys = programs.settings(
            hidden=128, ffn=300, vocab=256, steps=steps, micro_batches=micro_batches
        )
        done = call("verify", "one.toml", "--memory", "100K", *keys)
        return float(re.search(r"it needs ([\d.]+) MiB of 100.00 KiB", done.stderr)[1])

    weights = 4 / 2**20 * (2 * (4 * 128**2 + 3 * 128 * 300 + 2 * 128) + 2 * 256 * 128 + 128)
    one, four, six = needed("1"), needed("1,2,3,4"), needed("1,2,3,4,5,6")
    assert four == six and abs(four - one - 6 * weights) < 0.02, (one, four, six, weights)
    assert abs(one - needed("1", steps=1) - 2 * weights) < 0.02


def check_lonely_ranks():
    """Where srun and MPI do not understand each other, every rank is alone: refused, and told by
    the first only."""
    for rank, says in (("0", "srun --mpi=list"), ("3", "")):
        srun = os.environ | {
            "SLURM_STEP_NUM_TASKS": "4",
            "SLURM_PROCID": rank,
            "PMI_SIZE": "",
            "OMPI_COMM_WORLD_SIZE": "",
        }
        done = call("run", DECK, env=srun)
        if says:
            programs.refused(done, says)
        else:
            assert (done.returncode, done.stdout, done.stderr) == (2, "", ""), programs.told(done)


def check_help():
    assert accepted("--version").startswith("minitaw ")
    overview, usage = accepted("help"), accepted("--help")
    for verb in ("run", "verify", "plan", "show", "help"):
        assert f"\n  {verb} " in overview and verb in usage
        assert accepted(verb, "--help") and f"minitaw {verb}" in accepted("help", verb)
    assert "micro_batches (" in accepted("help", "keys")
    assert accepted("help", "seq").startswith("seq (")
    assert {"serial", "fsdp", "tawpipe"} < set(accepted("help", "schedules").split("\n"))
    text = accepted("help", "tawpipe")
    assert "tawpipe:cco=on|off|serial" in text, text
    assert (
        "  rank 0 F0 F1 F2 F3 B3 B2 B1 B0\n  rank 1 F0 F1 F2 F3 B3 B2 B1 B0\n  rank 2  . F0 F1"
        in text
    ), text
    for schedule in ("serial", "zbv"):
        assert "  rank 0 F0" in accepted("help", schedule), schedule
    assert accepted("help", "keys", "--markdown").startswith("# Deck keys")


def on_terminal(columns, *arguments):
    """The lines that a terminal of this width shows."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    with subprocess.Popen([PROGRAM, *map(str, arguments)], cwd=FOLDER, stdout=theirs) as running:
        os.close(theirs)
        said = b""
        try:
            while part := os.read(ours, 1 << 16):
                said += part
        except OSError:  # the other end is closed
            pass
    assert running.returncode == 0, said
    return said.decode().replace("\r\n", "\n").split("\n")


def check_terminal():
    """Sentences and descriptions are broken at its width, and say all that a file gets."""
    for columns in (60, 80, 100):
        for arguments in (("run", "--help"), ("help", "keys"), ("help", "tawpipe")):
            lines = on_terminal(columns, *arguments)
            wide = [line for line in lines if len(line) > columns and " " in line.strip()]
            assert not wide, (columns, arguments, wide)
            assert " ".join(lines).split() == accepted(*arguments).split(), arguments
    description = on_terminal(60, "run", "--help")
    assert any(re.match(r" {20,}\S", line) for line in description), "below the description"
    for columns in (70, 100):
        pathlib.Path(FOLDER, f"{columns}.h5").unlink(missing_ok=True)
        lines = on_terminal(columns, "run", "one.toml", "--set=steps=3", "-o", f"{columns}.h5")
        comments = [line for line in lines if line.startswith("# ") and "  " not in line]
        assert all(len(line) <= columns for line in comments), (columns, lines)
        text = "\n".join(lines)
        assert "\n#   " in text, text
        joined = text.replace("\n#   ", " ")
        assert "later steps: minitaw verify, speed: scripts/compare\n" in joined, text
        judged = re.search("# judged: .*", accepted("show", f"{columns}.h5")).group()
        assert f"{judged}\n" in joined, text


DECK.parent.mkdir(parents=True, exist_ok=True)
DECK.write_text(
    "ranks = 4\ngroups = 2\nlayers = 5\nhidden = 32\nheads = 4\nseq = 64\n", encoding="utf-8"
)
ONE = "schedule = 'serial'\nlayers = 2\nhidden = 32\nheads = 4\nseq = 16\n"
pathlib.Path(FOLDER, "one.toml").write_text(ONE, encoding="utf-8")
pathlib.Path(FOLDER, "two.toml").write_text(
    ONE + "vocab = 2\ndata = 'synthetic'\ndtype = 'bf16'\nsteps = 1\n", encoding="utf-8"
)
programs.run_checks(globals())
