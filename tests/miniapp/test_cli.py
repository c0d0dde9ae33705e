# SPDX-License-Identifier: BSD-3-Clause
"""The command line as a user meets it: exit codes, one sentence on standard error, nothing but JSON
where JSON is asked for."""

import os
import pathlib
import pty
import re
import signal
import subprocess
import time

import pytest
from programs import BUILD, MINITAW, REPOSITORY, call, minitaw, output_of, refused, told

DECK = "ranks = 4\ngroups = 2\nlayers = 5\nhidden = 32\nheads = 4\nseq = 64\n"
ONE = "schedule = 'serial'\nlayers = 2\nhidden = 32\nheads = 4\nseq = 16\n"


@pytest.fixture(autouse=True)
def decks(own_folder):
    pathlib.Path("deck.toml").write_text(DECK)
    pathlib.Path("one.toml").write_text(ONE)


def accepted(*arguments):
    return output_of(minitaw(*arguments))


# What a user may get wrong, and the words of the sentence that says what would be right. Of keys
# and their values one each: tests/deck has the rest.
REFUSED = """
                                                    | --help
rnu x                                               | did you mean "run"
--verbose                                           | --help
plan                                                | DECK
plan missing.toml                                   | cannot be read
plan .                                              | is a folder
plan deck.toml extra                                | extra
plan deck.toml --set layers                         | key=value
plan deck.toml --set sqe=3                          | did you mean "seq"
plan deck.toml --set schedule=täwpipe               | "täwpipe"
plan deck.toml --set schedule=csv                   | csv:file
plan deck.toml --set schedule=ddp --set replicas=2  | use replicas = 1
plan deck.toml --program --set replicas=2 --set schedule=ddp,fsdp | 2 cases
plan deck.toml --adapters 0                         | --adapters
plan deck.toml --device-memory many                 | --device-memory
plan deck.toml --device-memory 80                   | --device-memory
plan deck.toml --flops 400T                         | 400T is no number of FLOP/s from 1000 to 1e+18
run missing.toml                                    | cannot be read
run deck.toml                                       | mpiexec -n 4
run deck.toml --watchdog -1                         | --watchdog
run deck.toml --interleave=x                        | --interleave
run one.toml --time-limit 1:30:00                   | 1:30:00 is no number of seconds
run one.toml -o .                                   | not a file
run one.toml -o missing/x.h5                        | missing/x.h5
verify one.toml --set learning_rate=0.046           | by 1.2 times itself
verify one.toml --set vocab=2 --set dtype=bf16 --set steps=1 | by 1.3 times itself
verify one.toml --repeat 1                          | --repeat
verify one.toml --memory 100K                       | of 100.00 KiB
show                                                | FILE
show deck.toml                                      | not a miniTaw result
show missing.h5                                     | cannot be read
show deck.toml --csv --json                         | --csv
help tawpip                                         | did you mean "tawpipe"
"""


@pytest.mark.parametrize("line", REFUSED.strip("\n").splitlines())
def test_bad_input_is_one_sentence(line):
    arguments, _, says = line.partition("|")
    refused(minitaw(*arguments.split()), says.strip())


def test_a_program_is_no_deck():
    refused(minitaw("plan", MINITAW), "deck")


@pytest.mark.parametrize("rank, says", [("0", "srun --mpi=list"), ("3", "")])
def test_lonely_ranks(rank, says):
    """Where srun and MPI do not understand each other, every rank is alone: refused, and told by
    the first only."""
    srun = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": rank}
    srun |= dict.fromkeys(("PMI_SIZE", "OMPI_COMM_WORLD_SIZE"), "")
    done = minitaw("run", "deck.toml", env=os.environ | srun)
    if says:
        refused(done, says)
    else:
        assert (done.returncode, done.stdout, done.stderr) == (2, "", ""), told(done)


def test_help():
    assert accepted("--version").startswith("minitaw ")
    overview, usage = accepted("help"), accepted("--help")
    for verb in ("run", "verify", "plan", "show", "help"):
        assert f"\n  {verb} " in overview and verb in usage
        assert f"minitaw {verb}" in accepted(verb, "--help")
    assert "micro_batches (" in accepted("help", "keys")
    assert accepted("help", "seq").startswith("seq (")
    assert {"serial", "fsdp", "tawpipe"} < {*accepted("help", "schedules").split("\n")}
    assert "tawpipe:cco=on|off" in accepted("help", "tawpipe")


def on_terminal(*arguments):
    """The lines that a terminal shows."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([MINITAW, *arguments], stdout=theirs) as running:
        os.close(theirs)
        said = b""
        try:
            while part := os.read(ours, 1 << 16):
                said += part
        except OSError:  # the other end is closed
            pass
    assert running.returncode == 0, said
    return said.decode().replace("\r\n", "\n").splitlines()


def titles(lines):
    return next(line for line in lines if re.match("# +case ", line))


def test_a_table_is_narrow_on_a_terminal():
    """A line of 80 characters holds it, and `plan` tells only a few cases in detail."""
    ran = accepted("run", "one.toml", *SHORT, "-o", "one.h5").splitlines()
    for words, left_out in (
        (("show", "one.h5"), "MFU"),
        (("plan", "deck.toml", "--set=seq=64,128,256,512,1K"), "optimiser"),
    ):
        narrow, whole = on_terminal(*words), accepted(*words).splitlines()
        assert left_out in titles(whole) and left_out not in titles(narrow)
        lines = [line for line in narrow if line.startswith("  ") or line == titles(narrow)]
        assert len(lines) > 1 and all(len(line) <= 80 for line in lines)
    assert "case 4: tawpipe" in "\n".join(whole) and "case 4:" not in "\n".join(narrow)
    assert titles(ran) == titles(on_terminal("show", "one.h5")), "run has them, wherever it writes"


MACHINE = str(REPOSITORY / "inputs/machines/cluster-2x2.toml")
SHORT = ["--set=vocab=64", "--set=steps=3"]
TABLES = ["--help", "plan --help", "help keys", "topo", "plan one.toml", "plan one.toml --json"]
TABLES += [
    "show one.h5",
    "show one.h5 --csv",
    "verify one.toml",
    f"predict one.toml --machine {MACHINE}",
]


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """A file of one case."""
    path = tmp_path_factory.mktemp("result") / "one.h5"
    path.with_suffix(".toml").write_text(ONE)
    accepted("run", path.with_suffix(".toml"), *SHORT, "-o", path)
    return path


@pytest.mark.parametrize("table", TABLES)
def test_a_table_that_does_not_arrive_is_an_error(table, result):
    """A full device and a closed stream have a sentence, whatever number a library's socket gets. A
    reader that has gone ends the program by SIGPIPE, whether the parent ignores that signal or
    not."""
    os.symlink(result, "one.h5")
    words = [MINITAW, *table.split()]
    preloaded = f"LD_PRELOAD={BUILD}/tests/miniapp/libtakes_a_number.so"
    for redirection, reason in ((">/dev/full", "No space left"), (">&-", "Bad file descriptor")):
        line = f'exec env {preloaded} "$@" {redirection}'
        refused(call("sh", "-c", line, "sh", *words), "standard output", reason)
    for ignored in (True, False):
        ours, theirs = os.pipe()
        os.close(ours)
        done = subprocess.run(
            words,
            stdout=theirs,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(
                signal.SIGPIPE, signal.SIG_IGN if ignored else signal.SIG_DFL
            ),
            restore_signals=False,
        )
        os.close(theirs)
        assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b""), done


@pytest.mark.parametrize("redirection", [">/dev/full", ">&-", "| true"])
def test_a_run_whose_table_does_not_arrive_has_its_file(redirection):
    """One sentence says so."""
    run = f'{{ "$@"; echo $? >code; }} {redirection}'
    done = call("sh", "-c", run, "sh", MINITAW, "run", "one.toml", *SHORT, "-o", "one.h5")
    assert done.stdout == "" and re.fullmatch(
        "minitaw: standard output: .*; the run goes on, one.h5 has it all\n", done.stderr
    ), told(done)
    assert pathlib.Path("code").read_text() == "0\n"
    assert "RESULT: VALID" in accepted("show", "one.h5")


def test_an_interrupted_prediction_ends():
    """As a terminal interrupts it, with all its processes; and where only the first is told."""
    minutes = ["predict", "deck.toml", "--machine", MACHINE, "--set=micro_batches=400000"]
    for send in (os.killpg, os.kill):
        with subprocess.Popen(
            [MINITAW, *minutes], start_new_session=True, stderr=subprocess.PIPE, text=True
        ) as running:
            children = pathlib.Path(f"/proc/{running.pid}/task/{running.pid}/children")
            while not children.read_text():
                assert running.poll() is None
                time.sleep(0.1)
            time.sleep(0.5)
            send(running.pid, signal.SIGINT)
            assert running.communicate(timeout=20) == (None, "")  # the child has closed it, too
        assert running.returncode == -signal.SIGINT
