# SPDX-License-Identifier: BSD-3-Clause
"""The examples for CI: both parse, say the same, and what they say of miniTaw really runs; those
for suites know every schedule. Called with the repository, the program and a folder to write to.
Their calls of scripts/perf-gate run with few pairs or steps of this one program; that of every
night adds records to a history, and calls scripts/trend."""

import json
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import types
import unittest.mock
import xml.etree.ElementTree

import programs

REPOSITORY, PROGRAM, FOLDER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
EXAMPLES = REPOSITORY / "examples" / "ci"
TINY = (
    'schedule = ["serial", "tawpipe"]\nranks = 1\nlayers = 1\nhidden = 16\nhead_dim = 8\n'
    "vocab = 32\nseq = 8\nsteps = 3\n"
)


def check_suites():
    """Lists of schedules are those of the program, but for the serial one, and have FSDP's other
    form."""
    names = set(programs.call(PROGRAM, "help", "schedules", check=True).stdout.split())
    for file, before in (
        ("reframe/minitaw_test.py", "SCHEDULES = "),
        ("reframe/eessi_minitaw.py", r"schedule = parameter\("),
        ("ramble/ramble.yaml", "schedule: "),
    ):
        text = (REPOSITORY / "examples" / file).read_text(encoding="utf-8")
        (found,) = re.findall(rf"{before}\s*\[([^]]*)\]", text)
        listed = re.findall(r"[\w:=]+", found)
        assert {name.partition(":")[0] for name in listed} == names - {
            "serial"
        }, f"{file} has {listed}, the program {names}"
        assert "fsdp:hierarchical=on" in listed
    assert "help schedules" in (REPOSITORY / "examples/jube/minitaw.yaml").read_text(
        encoding="utf-8"
    )


def reframe_stand_in():
    """The parts of ReFrame that minitaw_test.py names: decorators change nothing, values are there
    at once."""

    class Test:
        current_partition = types.SimpleNamespace(fullname="here:cpu", features=[])

        def __init__(self):
            self.perf_variables, self.reference = {}, {}

        def is_dry_run(self):
            return False

    now = types.SimpleNamespace
    sanity = types.ModuleType("reframe.utility.sanity")
    sanity.deferrable = lambda work: lambda *words: now(evaluate=lambda: work(*words))
    sanity.defer = lambda value: value
    sanity.make_performance_function = lambda value, units: (value, units)
    builtins = types.ModuleType("reframe.core.builtins")
    builtins.sanity_function = lambda work: work
    for name in ("run_after", "run_before"):
        setattr(builtins, name, lambda when: lambda work: work)
    builtins.parameter, builtins.fixture = lambda values: values[0], lambda *_, **__: None
    builtins.variable = lambda *_, value: value
    main = types.ModuleType("reframe")
    main.simple_test = lambda test: test
    main.CompileOnlyRegressionTest = main.RunOnlyRegressionTest = Test
    main.utility, main.core = types.ModuleType("reframe.utility"), types.ModuleType("reframe.core")
    main.utility.sanity = sanity
    return {
        "reframe": main,
        "reframe.utility": main.utility,
        "reframe.utility.sanity": sanity,
        "reframe.core": main.core,
        "reframe.core.builtins": builtins,
    }


def check_reframe():
    """Each case of a deck has its own figures, those of `show`. References: planned bytes, given
    throughput."""
    with unittest.mock.patch.dict(sys.modules, reframe_stand_in()):
        names = runpy.run_path(str(REPOSITORY / "examples/reframe/minitaw_test.py"))
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "deck.toml").write_text(
        TINY.replace("seq = 8", "seq = [8, 24, 16]"), encoding="utf-8"
    )
    for overrides, labels in (
        ([], ["[seq=8]", "[seq=24]", "[seq=16]"]),
        (["--set=seq=16"], [""]),
        (
            ["--set=seq=16,8", "--set=hidden=16,32"],
            ["[hidden=16,seq=16]", "[hidden=16,seq=8]", "[hidden=32,seq=16]", "[hidden=32,seq=8]"],
        ),
    ):
        (FOLDER / "result.h5").unlink(missing_ok=True)
        here = {"cwd": FOLDER, "capture_output": True, "text": True, "check": False}
        words = ["deck.toml", "--set=schedule=serial", *overrides, "-o", "result.h5"]
        subprocess.run([PROGRAM, "run", *words], **here)
        shown = subprocess.run([PROGRAM, "show", "result.h5", "--json"], **here).stdout
        rows = [
            case | {"planned_between": 7 + number}
            for number, case in enumerate(json.loads(shown)["runs"])
        ]
        (FOLDER / "result.json").write_text(json.dumps({"runs": rows}), encoding="utf-8")
        test = names["minitaw_schedule"]()
        test.stagedir, test.schedule = str(FOLDER), "serial"
        names["REFERENCES"]["here:cpu"] = {f"serial{labels[-1]}": 1.5e9}
        test.figures()
        columns = ("tokens_per_s", "median_s", "memory_measured", "bytes_between")
        wanted = {
            column + label: case[column]
            for case, label in zip(rows, labels, strict=True)
            for column in columns
        }
        found = {name: value for name, (value, _) in test.perf_variables.items()}
        assert found == wanted, (found, wanted)
        references = test.reference["here:cpu"]
        assert references.pop(f"tokens_per_s{labels[-1]}")[:2] == (1.5e9, -0.1), references
        planned = {
            f"bytes_between{label}": (7 + number, 0, 0) for number, label in enumerate(labels)
        }
        assert {name: entry[:3] for name, entry in references.items()} == planned, references
        memory = {value for name, value in wanted.items() if name.startswith("memory")}
        assert len(memory) == len(labels), "cases differ in memory"


def command_of(example):
    """The one line that measures, without the YAML in front of it."""
    lines = (EXAMPLES / example).read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if "scripts/perf-gate" in line]
    return line[line.index("scripts/perf-gate") :]


def blocks_of(example):
    """The lines of each block of commands ("|") of an example, without what is before them."""
    blocks, depth = [], None
    for line in (EXAMPLES / example).read_text(encoding="utf-8").splitlines():
        inside = len(line) - len(line.lstrip())
        if depth is not None and inside > depth:
            blocks[-1].append(line.strip())
        else:
            depth = inside if re.fullmatch(r"(run: |- )\|", line.strip()) else None
            blocks += [[]] * 0 if depth is None else [[]]
    return blocks


def check_yaml():
    """With a parser where there is one; it is no package that miniTaw needs."""
    try:
        import yaml
    except ImportError:
        print("no parser for YAML here: only the command is checked")
        return
    github = yaml.safe_load((EXAMPLES / "github-actions.yml").read_text(encoding="utf-8"))
    gitlab = yaml.safe_load((EXAMPLES / "gitlab-ci.yml").read_text(encoding="utf-8"))
    job = github["jobs"]["compare"]
    command = command_of("github-actions.yml")
    assert "BASE" in job["env"] and "BASE" in gitlab["performance"]["variables"]
    assert command in [step.get("run") for step in job["steps"]]
    assert gitlab["performance"]["script"] == [command]
    nightly = yaml.safe_load((EXAMPLES / "github-nightly.yml").read_text(encoding="utf-8"))["jobs"][
        "history"
    ]
    assert (
        "history"
        in yaml.safe_load((EXAMPLES / "gitlab-nightly.yml").read_text(encoding="utf-8"))[
            "nightly performance"
        ]["cache"]["paths"]
    )
    assert [
        step["uses"] for step in nightly["steps"] if step.get("with", {}).get("path") == "history"
    ] == [f"actions/cache/{what}@v4" for what in ("restore", "save")]
    for step in job["steps"] + nightly["steps"]:
        if "run" in step:
            subprocess.run(
                ["bash", "-n"],
                input=re.sub(r"\$\{\{.*?\}\}", "x", step["run"]),
                text=True,
                check=True,
            )


def folder():
    """Looks like the repository from there."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    (FOLDER / "build" / "perf-gate").mkdir(parents=True)
    (FOLDER / "build" / "perf-gate" / "minitaw").symlink_to(PROGRAM)
    (FOLDER / "inputs").mkdir()
    (FOLDER / "scripts").symlink_to(REPOSITORY / "scripts")
    commit = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m a"
    subprocess.run(f"git init -q; {commit}; {commit}", shell=True, check=True, cwd=FOLDER)


def run(script, **options):
    return subprocess.run(
        ["bash", "-c", script], cwd=FOLDER, capture_output=True, text=True, timeout=240, **options
    )


def with_this_program(command, more):
    """The gate's command: this program on both sides."""
    assert '"$BASE" ' in command
    start = f"'mpiexec -n {{ranks}} {PROGRAM}'"
    return command.replace('"$BASE"', f"--base-run {start} --new-run {start}") + more


def check_command():
    command = command_of("github-actions.yml")
    assert command == command_of("gitlab-ci.yml"), "the two examples differ in what they do"
    folder()
    (FOLDER / "inputs" / "gate.toml").write_text(TINY)
    done = run(with_this_program(command, " --deck inputs/gate.toml --rounds 2"))
    assert (
        done.returncode in (0, 1) and "COMPARISON: " in done.stdout
    ), f"exit {done.returncode}: {done.stdout}{done.stderr}"
    assert (
        "too few pairs of files (2)" in done.stdout
    ), done.stdout  # too few on purpose: times are for no test
    suites = xml.etree.ElementTree.parse(FOLDER / "out" / "compare.xml").getroot()
    assert [suite.get("tests") for suite in suites] == ["9", "9"]
    table = (FOLDER / "out" / "compare.txt").read_text(encoding="utf-8")
    assert "\nCOMPARISON: AMBIGUOUS: " in table, table
    assert all(f"\n     {i} " in table for i in range(2)), table
    assert len(list((FOLDER / "out").glob("*.h5"))) == 4


def check_nightly():
    """Every deck runs, of few steps, and the history grows by a record of both decks of the gate,
    on which trend is called."""
    gate, history = blocks_of("github-nightly.yml")[:2]
    others = blocks_of("gitlab-nightly.yml")
    assert [line.removesuffix(" || failed=1") for line in others[0]] == gate and others[
        1
    ] == history, "the two examples differ in what they do"
    folder()
    commands = [
        (
            with_this_program(line, " --rounds 1 --set steps=3 --set warmup=1")
            if "perf-gate" in line
            else line
        )
        for line in gate
    ]
    done = run("set -e\n" + "\n".join(commands))
    assert "COMPARISON: AMBIGUOUS" in done.stdout, (
        done.stdout + done.stderr
    )  # one pair decides nothing
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(" ")]
    schedules = {row[1].partition(":")[0] for row in rows}
    assert schedules == {"tawpipe", "weipipe", "fsdp", "ddp", "1f1b", "zb1"}, rows
    assert max(int(row[4]) for row in rows) >= 1024, rows
    assert len(list((FOLDER / "out").glob("*.h5"))) == 2, done.stderr
    assert (FOLDER / "out" / "compare.xml").exists(), done.stderr
    for name in ("gate.toml", "gate-communication.toml"):
        deck = (REPOSITORY / "inputs" / name).read_text(encoding="utf-8")
        (FOLDER / "inputs" / name).write_text(re.sub(r"(?m)^steps = \d+", "steps = 3", deck))
    done = run("set -e\n" + "\n".join(history))
    assert done.returncode == 0 and done.stdout.splitlines()[-1].startswith("TREND: UNKNOWN"), (
        done.stdout + done.stderr
    )
    assert done.stdout.count("# started") == 3
    assert (FOLDER / "out" / "trend.png").exists()
    assert (FOLDER / "history" / "commit").exists()
    assert len(list((FOLDER / "history").glob("*.h5"))) == 1


for check in (check_suites, check_reframe, check_yaml, check_command, check_nightly):
    check()
