# SPDX-License-Identifier: BSD-3-Clause
"""Executes the commands that pages, decks and scripts name, with little work: README.md says how.

    check_commands.py REPOSITORY BUILD SAMPLE FOLDER

With TELL_TIMES in the environment it says how long each one took; ONLY is a regular expression of
the commands that are executed, with those of their blocks.
"""

import concurrent.futures
import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import time

import pages
import programs
from pages import Command

REPOSITORY, BUILD, SAMPLE, FOLDER = (pathlib.Path(word).resolve() for word in sys.argv[1:5])
HERE = pathlib.Path(__file__).resolve().parent
TREE = FOLDER / "tree"  # a copy of the repository, whose programs have stand-ins
BENCH = "benchmarks"
PLACES = {
    "minitaw": "minitaw",
    "minitaw_kernels": f"{BENCH}/minitaw_kernels",
    "minitaw_comm": f"{BENCH}/comm/minitaw_comm",
}
OWN_RECORD = "results/*/*/small.tar.gz", "small.h5"  # an archive, and the file in it

SHELL = ("export ", "cd ", "tar ")  # they do nothing by themselves
# Instead of what takes long: fewer points of a measurement.
FEWER = [
    (r"inputs/performance/host\*\.toml", "inputs/performance/host.toml"),
    (r"(link_speeds\.py measure \S+)", r"\1 --nodes 2 --rates 100mbit"),
]
# Verdicts on the sample, which has cases that failed, may be 1.
VERDICT = re.compile(r"minitaw (show|screen)\b|scripts/(compare|check-rules)")
ADVICE = (
    "mend the page or the program; a command that cannot be executed in a test goes into "
    "tests/commands/not_run.txt, with its reason"
)
PEER = """import argparse, json
parser = argparse.ArgumentParser()
for name in ("layers hidden heads kv-heads ffn vocab seq accumulate steps threads micro-batch "
             "warmup device dtype").split():
    parser.add_argument(f"--{name}")
parser.add_argument("--no-recompute", action="store_true")
parser.parse_args()
print(json.dumps({"tokens_per_s": 123.0, "version": "none"}))
"""


def not_run():
    """{command: reason}."""
    lines = (HERE / "not_run.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t")[::-1] for line in lines if line and not line.startswith("#"))


# What exists


@functools.cache
def help_of(*words):
    """The help text of a program of ours, or of its verb; empty if it has none."""
    done = programs.call(*words, "--help", cwd=TREE)
    return done.stdout + done.stderr if done.returncode == 0 else ""


def program_of(words):
    """Words that call a program of ours for its help, with its verb; None: it is not ours."""
    words = [word for word in words if not re.fullmatch(r"[A-Za-z_]+=\S*", word)]
    while words and re.search(r"(^|/)(env|mpiexec|python3)$", words[0]):
        words = words[1:]
        while words and (words[0].startswith("-") or re.fullmatch(r"\d+|[A-Z]", words[0])):
            words = words[1:]
    if not words:
        return None
    name = words[0].lstrip("./")
    if name.startswith(("scripts/", "benchmarks/")) and (REPOSITORY / name).exists():
        verbs = r"measure|tables|draw|predict|check|picture"
        verb = [word for word in words[1:2] if re.fullmatch(verbs, word)]
        return [*([sys.executable] if name.endswith(".py") else []), str(TREE / name), *verb]
    name = name.rpartition("/")[2]
    if name not in PLACES:
        return None
    verb = [word for word in words[1:2] if name == "minitaw" and re.fullmatch(r"[a-z]+", word)]
    return [str(BUILD / PLACES[name]), *verb]


def what_is_missing(command):
    """Programs, verbs, options and files that a command names and that do not exist."""
    text = re.sub(r"[\[\]|]|\.\.\.", " ", command.words)
    for part in re.split(r"\s+--\s+|&&|;|\s\|\s", text):
        words = part.replace("'", "").replace('"', "").split()
        for word in words:
            is_ours = re.match(
                r"(\./)?(scripts|inputs|benchmarks|examples|packaging)/[\w./-]+$", word
            )
            if is_ours and not (REPOSITORY / word).exists():
                yield f"no file {word}"
        called = program_of(words)
        if called is None:
            continue
        said, name = help_of(*called), " ".join(pathlib.Path(word).name for word in called)
        if not said:
            yield f"no help of {name}"
        for option in re.findall(r" (--[a-z][\w-]*)", " " + " ".join(words)):
            if not option.startswith("--benchmark") and not re.search(rf"{option}(?![\w-])", said):
                yield f"{name} has no {option}"


# Executing


def make_tree():
    """The repository's files, without its builds; programs are stand-ins, which do little work."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    (FOLDER / "bin").mkdir(parents=True)
    TREE.mkdir()
    for name in ("inputs", "scripts", "benchmarks", "docs", "results", "examples"):
        shutil.copytree(
            REPOSITORY / name, TREE / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("minitaw", "mpiexec", "README.md"):
        shutil.copy(REPOSITORY / name, TREE)
    stand_in = HERE / "small.py"
    for name in (*PLACES, "mpiexec", "srun"):
        (FOLDER / "bin" / name).symlink_to(stand_in)
    for place in PLACES.values():
        for build in ("host", "cuda"):
            target = TREE / "build" / build / place
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(stand_in)
    (TREE / "scripts/cluster").unlink()
    (TREE / "scripts/cluster").symlink_to(stand_in)
    subprocess.run(
        [TREE / "scripts/check-rules", SAMPLE, "--archive", FOLDER / "sample.tar.gz"],
        stdout=subprocess.DEVNULL,
        check=False,
    )


def add_files(folder, commands):
    """The files that the commands read and do not write themselves."""
    text = "\n".join(command.words for command in commands)
    written = set(re.findall(r"(?:-o|--output) (\S+)", text))
    read = set(re.findall(r"(?<!-o )(?<!--output )\b([\w/.-]+\.h5)\b", text)) - written
    for name in (*read, "FOLDER/sample.h5"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SAMPLE, folder / name)
    for name in set(re.findall(r"(?<![\w/.-])[\w-]+\.tar\.gz", text)) - written:
        shutil.copy(FOLDER / "sample.tar.gz", folder / name)
    for name in re.findall(r"(?<![\w/.-])[\w-]+\.(?:sh|txt|md|json|csv)\b", text):
        if name not in written and not (folder / name).exists():
            (folder / name).write_text("a file that is added\n", encoding="utf-8")
    (folder / "STEP.py").write_text(PEER, encoding="utf-8")
    shutil.copy(TREE / "inputs/machines/cluster-2x2.toml", folder / "here.toml")
    if commands[0].page == "results/README.md":  # one's own record, of the same deck
        pattern, name = OWN_RECORD
        (path,) = REPOSITORY.glob(pattern)
        with tarfile.open(path) as archive:
            (folder / "mine.h5").write_bytes(archive.extractfile(name).read())


def script_of(commands):
    """Executes them in one shell, one after the other, and says the exit code of each."""
    lines = []
    for number, command in enumerate(commands):
        words = functools.reduce(lambda text, rule: re.sub(*rule, text), FEWER, command.words)
        words = re.sub(r"(?<=[ =])DECK\b", "inputs/small/table.toml", words)
        lines.append(f"{words} >$PLACE/out-{number} 2>&1")
        lines.append(f"echo {number} $? $EPOCHREALTIME >>$PLACE/codes")
    return "\n".join(lines) + "\n"


def environment_of(folder, commands):
    found = os.environ | {
        "PATH": f"{FOLDER / 'bin'}:{os.environ['PATH']}",
        "TMPDIR": str(FOLDER),
        "REAL_BUILD": str(BUILD),
        "REAL_MPIEXEC": shutil.which("mpiexec"),
        "OMP_NUM_THREADS": "1",
        "PLACE": str(folder),
        "MPLBACKEND": "agg",
        "MPLCONFIGDIR": str(FOLDER / "mpl"),
    }
    return found | ({"SMALL_PLANS": "yes"} if commands[0].page.startswith("inputs/") else {})


def failure_of(command, code, said):
    """Why the command counts as failed; empty: it does not."""
    if code is None:
        return "it did not end in time"
    verdicts = (
        (0, 1, 3) if "screen" in command.words else (0, 1)
    )  # 3: other programs take the cores
    if code not in (verdicts if VERDICT.search(command.words) else (0,)):
        return f"exit code {code}"
    if "Traceback (most" in said:
        return "a traceback"
    if "benchmarks/" in command.words and re.search(r"(?<![\w.])nan\b", said):
        return "it prints what is no number: a column of the record has another name?"
    return ""


def execute(commands, number):
    """Sentences about the commands that failed; seconds of all."""
    folder, begun = FOLDER / f"run-{number}", time.time()
    folder.mkdir()
    for entry in TREE.iterdir():
        (folder / entry.name).symlink_to(entry)
    add_files(folder, commands)
    try:
        subprocess.run(
            ["bash", "-c", script_of(commands)],
            cwd=folder,
            timeout=500,
            check=False,
            env=environment_of(folder, commands),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        pass  # the last command has no exit code
    codes, before, found = {}, begun, []
    ended = (folder / "codes").read_text() if (folder / "codes").exists() else ""
    for at, code, end in map(str.split, ended.splitlines()):
        codes[int(at)] = int(code)
        if "TELL_TIMES" in os.environ:
            print(f"    {float(end) - before:6.1f} s {commands[int(at)].words[:100]}")
        before = float(end)
    for at, command in enumerate(commands):
        out = folder / f"out-{at}"
        said = out.read_text(errors="replace") if out.exists() else ""
        if why := failure_of(command, codes.get(at), said):
            found.append(f"{command.place}\n  {why}: ...{said[-1500:]}")
    return found, time.time() - begun


# The test


def notices_what_is_wrong():
    """What this test must find, planted by hand."""

    def missing(words):
        return list(what_is_missing(Command("page", 1, words, True)))

    assert missing("scripts/env scripts/compare base.h5 new.h5 --allow device   # remark --x") == []
    assert missing("scripts/compare --alow device") == ["compare has no --alow"]
    launched = "mpiexec -n 4 build/host/minitaw run DECK --watchdg 4"
    assert missing(launched) == ["minitaw run has no --watchdg"]
    assert missing("scripts/cluster --nodes 2 -- minitaw run inputs/no.toml --interleaved=3") == [
        "no file inputs/no.toml",
        "minitaw run has no --interleaved",
    ]
    assert missing("minitaw rum DECK") == ["no help of minitaw rum"]
    with_setting = "OMP_NUM_THREADS=2 minitaw_comm --deck DECK --pair 3"
    assert missing(with_setting) == ["minitaw_comm has no --pair"]
    form = next(pages.of_page("p", "```\nminitaw plan DECK [--json\n    | --program]\n```\n"))
    assert form[0].is_form and form[0].words == "minitaw plan DECK [--json | --program]", form
    two = (
        "```\nminitaw plan a.toml \\\n  --json  # x\nscripts/report a.h5\n```\n"
        "as `minitaw run` says\n"
    )
    found = [[c.words for c in some] for some in pages.of_page("p", two)]
    assert found == [["minitaw plan a.toml --json", "scripts/report a.h5"], ["minitaw run"]], found
    assert not list(pages.of_page("p", "```\nminitaw: rank 0 waits\n```\n"))
    said = Command("p", 1, "scripts/env benchmarks/x.py", True)
    assert failure_of(said, 0, "| nan |") and failure_of(said, 1, "")
    assert not failure_of(said, 0, "4.nan | nano")
    assert pages.anchors_of("## What is [new](x.md), `a_b` and C++?\n") == {"what-is-new-a_b-and-c"}
    assert failure_of(said, 0, "Traceback (most recent") and failure_of(said, None, "")


def is_listed(words, reasons):
    """By its words, or by how it begins where those in the list end with a star."""
    return any(words == one or one.endswith("*") and words.startswith(one[:-1]) for one in reasons)


def to_execute(groups, reasons):
    """Groups of which something is not executed by another group already."""
    done, chosen = set(), []
    for group in groups:
        some = [
            c for c in group if c.executes and not c.is_form and not is_listed(c.words, reasons)
        ]
        if not all(c.essence in done or c.words.startswith(SHELL) for c in some):
            chosen.append(some)
            done |= {c.essence for c in some}
    return chosen


def main():
    groups, reasons = list(pages.all_commands(REPOSITORY)), not_run()
    every = {command.words: command for group in groups for command in group}
    named = {c.words for group in groups for c in group if c.executes and not c.is_form}
    wrong = [
        f"not_run.txt: no page names {one}"
        for one in reasons
        if not any(is_listed(words, [one]) for words in named)
    ]
    wrong += pages.broken_links(REPOSITORY)
    wrong += pages.names_of_nothing(REPOSITORY)
    make_tree()
    notices_what_is_wrong()
    only = os.environ.get("ONLY", "")
    chosen = [
        some for some in to_execute(groups, reasons) if any(re.search(only, c.words) for c in some)
    ]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        looked_up = pool.map(lambda command: list(what_is_missing(command)), every.values())
        for command, found in zip(every.values(), looked_up):
            wrong += [f"{command.place}\n  {sentence}" for sentence in found]
        for (found, seconds), some in zip(pool.map(execute, chosen, range(len(chosen))), chosen):
            wrong += found
            more = f" and {len(some) - 1} more" if len(some) > 1 else ""
            print(f"{seconds:5.1f} s  {some[0].place[:100]}{more}")
    executed = sum(map(len, chosen))
    assert (
        only or executed > 90 and len(every) > 200
    ), "most commands of the pages are not found any more"
    print(
        f"{len(every)} commands: {executed} executed, {len(reasons)} listed, of all names looked up"
    )
    if wrong:
        sys.exit("\n".join([*wrong, ADVICE]))


main()
