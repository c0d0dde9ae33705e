"""The examples for CI: both parse, say the same, and what they say of miniTaw really runs. Called with the repository, the program
and a folder to write to. The lines between "minitaw: begin" and "minitaw: end" run with a tiny deck and few pairs."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap
import xml.etree.ElementTree

REPOSITORY, PROGRAM, FOLDER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
EXAMPLES = REPOSITORY / "examples" / "ci"
TINY = """
schedule = ["serial", "tawpipe"]
ranks = 1
layers = 1
hidden = 16
head_dim = 8
vocab = 32
seq = 8
steps = 3
"""


def script_of(example):
    """The lines between the marks, without the indentation of the YAML."""
    lines = (EXAMPLES / example).read_text(encoding="utf-8").splitlines(keepends=True)
    begin, end = (next(i for i, line in enumerate(lines) if mark in line) for mark in ("# minitaw: begin", "# minitaw: end"))
    return textwrap.dedent("".join(lines[begin : end + 1]))


def check_yaml():
    """With a parser where there is one; it is no package that miniTaw needs."""
    try:
        import yaml
    except ImportError:
        print("no parser for YAML here: only the scripts are checked")
        return
    github = yaml.safe_load((EXAMPLES / "github-actions.yml").read_text(encoding="utf-8"))
    gitlab = yaml.safe_load((EXAMPLES / "gitlab-ci.yml").read_text(encoding="utf-8"))
    job = github["jobs"]["compare"]
    assert job["env"]["NEW"] == gitlab["performance"]["variables"]["NEW"]
    assert any("minitaw: begin" in step.get("run", "") for step in job["steps"])
    assert "minitaw: begin" in gitlab["performance"]["script"][0]
    for step in job["steps"]:
        if "run" in step:
            subprocess.run(["bash", "-n"], input=re.sub(r"\$\{\{.*?\}\}", "x", step["run"]), text=True, check=True)
    for line in gitlab["performance"]["before_script"]:
        subprocess.run(["bash", "-n"], input=line, text=True, check=True)


def run(script, pairs):
    """The script with few pairs, in a folder that looks like the repository from there; the exit code and what it wrote."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    (FOLDER / "inputs").mkdir(parents=True)
    (FOLDER / "inputs" / "gate.toml").write_text(TINY)
    (FOLDER / "scripts").symlink_to(REPOSITORY / "scripts")
    assert "seq -w 48" in script and "-lt 9" in script, "the numbers of pairs are not where they were"
    script = script.replace("seq -w 48", f"seq -w {pairs}").replace("-lt 9", f"-lt {pairs - 1}")
    environment = os.environ | {"BASE": str(PROGRAM), "NEW": str(PROGRAM), "RANKS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(["bash", "-e", "-c", script], cwd=FOLDER, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode in (0, 1), f"exit {done.returncode}: {done.stdout}{done.stderr}"
    assert "COMPARISON: " in done.stdout, done.stdout + done.stderr
    return done


def check_scripts():
    script = script_of("github-actions.yml")
    assert script == script_of("gitlab-ci.yml"), "the two examples differ in what they do"
    done = run(script, 2)
    assert "2 pairs of files, at least 6" in done.stdout, done.stdout  # too few on purpose: times are for no test
    suites = xml.etree.ElementTree.parse(FOLDER / "out" / "compare.xml").getroot()
    assert [suite.get("tests") for suite in suites] == ["9", "9"]
    table = (FOLDER / "out" / "compare.md").read_text(encoding="utf-8")
    assert table.startswith("### miniTaw: ") and table.count("\n| ") == 3, table
    assert len(list((FOLDER / "out").glob("*.h5"))) == 4


def check_gate_deck():
    """The deck of the gate is a valid one."""
    subprocess.run([PROGRAM, "plan", REPOSITORY / "inputs" / "gate.toml"], check=True, capture_output=True)


check_yaml()
check_gate_deck()
check_scripts()
print("the examples run")
