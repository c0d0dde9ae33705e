# SPDX-License-Identifier: BSD-3-Clause
"""The examples for suites, CI and Slurm parse, and the names and expressions by which they read
results are those of what the program says. Their commands: test_commands.py."""

import ast
import json
import pathlib
import re

import pytest
from programs import REPOSITORY, call, minitaw, on_ranks, output_of, settings

EXAMPLES = REPOSITORY / "examples"


def text_of(name):
    return (EXAMPLES / name).read_text()


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """By `run`, and `show --json` of its record."""
    file = tmp_path_factory.mktemp("run") / "result.h5"
    sizes = settings(schedule="tawpipe", layers=2, hidden=32, heads=2, seq=16, micro_batches=2)
    deck = REPOSITORY / "inputs/quickstart.toml"
    run = output_of(on_ranks(2, "run", deck, *sizes, "--set=ranks=2", "-o", file))
    return run, output_of(minitaw("show", file, "--json"))


def test_everything_parses():
    for file in EXAMPLES.glob("slurm/*"):
        call("bash", "-n", file, check=True)
    for file in EXAMPLES.rglob("*.py"):
        ast.parse(file.read_text())
    yaml = pytest.importorskip("yaml")
    for file in EXAMPLES.rglob("*.y*ml"):
        for job in yaml.safe_load(file.read_text()).get("jobs", {}).values():
            for step in job["steps"]:
                script = re.sub(r"\$\{\{.*?\}\}", "x", step.get("run", ""))
                call("bash", "-n", input=script, check=True)


@pytest.mark.parametrize("name", ["github-actions", "github-nightly"])
def test_what_is_not_decided_passes_with_a_warning(name):
    """As the shell of a job in a container runs the step, with a gate that ends with this code."""
    yaml = pytest.importorskip("yaml")
    (job,) = yaml.safe_load(text_of(f"ci/{name}.yml"))["jobs"].values()
    (gate,) = (step["run"] for step in job["steps"] if "perf-gate " in step.get("run", ""))
    for folder in ("scripts", "out", "history"):
        pathlib.Path(folder).mkdir()
    pathlib.Path("history/commit").touch()
    pathlib.Path("out/compare.txt").write_text("COMPARISON: AMBIGUOUS: 1 of 1 case\n")
    stub = pathlib.Path("scripts/perf-gate")
    for code, ends in ((0, 0), (1, 1), (2, 2), (3, 0)):
        stub.write_text(f"#!/bin/sh\nexit {code}\n")
        stub.chmod(0o755)
        done = call("sh", "-e", input=gate)
        assert done.returncode == ends
        assert ("::warning" in done.stdout and "AMBIGUOUS" in done.stdout) == (code == 3)


@pytest.mark.parametrize("name", ["gitlab-ci", "gitlab-nightly"])
def test_gitlab_warns_of_what_is_not_decided(name):
    yaml = pytest.importorskip("yaml")
    (job,) = yaml.safe_load(text_of(f"ci/{name}.yml")).values()
    assert job["allow_failure"] == {"exit_codes": 3}
    ends = {"gitlab-ci": r"scripts/perf-gate [^|]*", "gitlab-nightly": r'exit "\$\{code:-0\}"'}
    assert re.fullmatch(ends[name], job["script"][-1])


@pytest.mark.parametrize(
    ("name", "before"),
    [
        ("reframe/minitaw_test.py", "SCHEDULES = "),
        ("reframe/eessi_minitaw.py", r"schedule = parameter\("),
        ("ramble/ramble.yaml", "schedule: "),
    ],
)
def test_every_schedule_is_listed(name, before):
    (found,) = re.findall(rf"{before}\s*\[([^]]*)\]", text_of(name))
    listed = re.findall(r"[\w:=]+", found)
    schedules = set(output_of(minitaw("help", "schedules")).split()) - {"serial"}
    assert set(listed) == schedules | {"fsdp:hierarchical=on"}


def test_jube_reads_what_show_says(said):
    numbers = {"$jube_pat_fp": r"[-+.e\d]+", "$jube_pat_int": r"\d+"}
    patterns = re.findall(r"_: '(\"\w+\": .*?)'\}", text_of("jube/minitaw.yaml"))
    assert len(patterns) == 6
    for pattern in patterns:
        for name, number in numbers.items():
            pattern = pattern.replace(name, f"({number})")
        assert re.search(pattern, said[1]), pattern


def test_ramble_reads_what_run_and_show_say(said):
    """And, of `screen`, its verdict."""
    text = text_of("ramble/repo/applications/minitaw/application.py")
    columns = re.findall(r'\("[\w ]+", "(\w+)", "', text)
    assert len(columns) == 6 and set(columns) <= json.loads(said[1])["runs"][0].keys()
    for column in columns:
        assert re.search(rf'^\s*"{column}": [-+.e\d]+', said[1], re.MULTILINE)
    others = re.findall(r'fom_regex=r"(.*)"', text) + re.findall(r'match=r"(.*)"', text)
    for expression in others:
        assert re.search(rf"^{expression}", said[0], re.MULTILINE), expression
    assert len(others) == 3


def test_reframe_reads_what_run_and_show_say(said):
    text = text_of("reframe/minitaw_test.py")
    assigned = [node for node in ast.parse(text).body if isinstance(node, ast.Assign)]
    values = {node.targets[0].id: node.value for node in assigned}
    figures, read = (ast.literal_eval(values[name]) for name in ("FIGURES", "SETTINGS"))
    columns, planned = {figure[0] for figure in figures}, {figure[-1] for figure in figures}
    assert len(planned) > 1
    assert columns | planned - {""} | {*read} <= json.loads(said[1])["runs"][0].keys()
    both = text + text_of("reframe/eessi_minitaw.py")
    expressions = re.findall(r'\(r"(\^(?:RESULT|figure).*?)", self', both)
    assert len(expressions) == 3
    for expression in expressions:
        assert re.search(expression, said[0], re.MULTILINE), expression
