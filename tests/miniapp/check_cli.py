"""The command line as a user meets it: exit codes, one sentence on standard error, nothing but JSON where JSON is asked for.
Called with the program, the repository and a folder to write to."""

import json
import pathlib
import subprocess
import sys

PROGRAM, REPOSITORY, FOLDER = sys.argv[1:]
DECK = pathlib.Path(FOLDER) / "deck.toml"


def call(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, cwd=FOLDER, timeout=120)


def refused(*arguments, says):
    done = call(*arguments)
    assert done.returncode == 2, f"{arguments}: exit {done.returncode}, {done.stderr}"
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("minitaw: "), f"{arguments}: {done.stderr!r}"
    assert says in lines[0], f"{arguments}: {lines[0]!r} does not say {says!r}"
    assert done.stdout == "", f"{arguments}: {done.stdout!r} on standard output"


def accepted(*arguments):
    done = call(*arguments)
    assert done.returncode == 0, f"{arguments}: exit {done.returncode}, {done.stderr}"
    assert done.stderr == "", f"{arguments}: {done.stderr!r}"
    return done.stdout


def check_refusals():
    refused(says="no verb")
    refused("rnu", "x", says='did you mean "run"')
    refused("plan", says="DECK")
    refused("plan", "missing.toml", says="cannot be read")
    refused("plan", FOLDER, says="is a folder")
    refused("plan", PROGRAM, says="deck")
    refused("plan", DECK, "--bogus", says="--bogus")
    refused("plan", DECK, "--set", "sqe=3", says='did you mean "seq"')
    refused("plan", DECK, "--set", "layers", says="key=value")
    refused("plan", DECK, "--set", "heads=5", says="heads")
    refused("plan", DECK, "--set", "seq=0", says="seq")
    refused("plan", DECK, "--set", "seq=9999999G", says="seq")
    refused("plan", DECK, "--set", "layers=2", says="layers")
    refused("plan", DECK, "--set", "groups=3", says="groups")
    refused("plan", DECK, "--program", "--set", "seq=64,128", says="--program")
    for size in ("many", "-1G", "3Gi", "3GiBs", "1e99G", "0"):
        refused("plan", DECK, f"--device-memory={size}", says="--device-memory")
    refused("run", "missing.toml", says="cannot be read")
    refused("run", DECK, says="mpiexec")
    refused("verify", DECK, "--set", "dtype=fp64", says="fp32, bf16")
    refused("show", says="FILE")
    refused("show", DECK, says="not an HDF5 file")
    refused("show", "missing.h5", says="is not a file")
    refused("help", "kyes", says="no help")


def check_help():
    assert accepted("--version").startswith("minitaw ")
    for verb in ("run", "verify", "plan", "show"):
        assert verb in accepted("--help")
        assert accepted(verb, "--help") and f"minitaw {verb}" in accepted("help", verb)
    assert "micro_batches (" in accepted("help", "keys")
    page = pathlib.Path(REPOSITORY, "docs/keys.md").read_text(encoding="utf-8")
    assert accepted("help", "keys", "--markdown") == page


def check_plan():
    text = accepted("plan", DECK)
    assert "case 1 of 1: tawpipe, 4 ranks in groups 2+2" in text
    (case,) = json.loads(accepted("plan", DECK, "--json"))["cases"]
    assert case["settings"]["ranks"] == 4 and len(case["memory_bytes"]["ranks"]) == 4
    for reach in case["bytes_per_step"].values():
        assert reach["total"] == sum(value for key, value in reach.items() if key != "total")
    between = case["bytes_per_step"]["between"]["total"]
    assert between == sum(group["bytes_out"] for group in case["groups"]) > 0
    worst = case["memory_bytes"]["worst"]["total"]
    assert worst == max(rank["total"] for rank in case["memory_bytes"]["ranks"]) > 0
    assert accepted("plan", DECK, "--program").count("\n") > 50


def check_fit():
    """The largest S that is said to fit does, and the next one does not."""
    def device(*arguments):
        return json.loads(accepted("plan", DECK, "--json", "--device-memory", "3G", *arguments))["cases"][0]["device"]
    plain = device()
    assert plain["fits"] and plain["available_bytes"] == 3 << 30
    largest = plain["largest_seq"]
    assert largest >= 128 and largest % 128 == 0
    assert device("--set", f"seq={largest}")["fits"]
    beyond = device("--set", f"seq={largest + 128}")
    assert not beyond["fits"] and beyond["largest_seq"] == largest
    assert "no S fits" in accepted("plan", DECK, "--device-memory", "1M")
    assert f"largest S that fits is {largest}" in accepted("plan", DECK, "--device-memory", "3GiB")


def check_paper_case():
    """Messages between groups as the paper counts them: weights (D-1)(2NP-(2N-1)), gradients (D-1)NP."""
    ranks, groups, per_rank = 24, 3, 16
    (case,) = json.loads(accepted(
        "plan", DECK, "--json", "--set", f"ranks={ranks}", "--set", f"groups={groups}", "--set", "layers=48", "--set",
        "hidden=4K", "--set", "heads=32", "--set", "seq=16K", "--set", "dtype=bf16", "--set",
        f"micro_batches={ranks * per_rank}"))["cases"]
    messages = case["messages"]
    assert messages["weights_between"] == (groups - 1) * (2 * per_rank * ranks - (2 * per_rank - 1))
    assert messages["gradients_between"] == (groups - 1) * per_rank * ranks


DECK.write_text("ranks = 4\ngroups = 2\nlayers = 5\nhidden = 32\nheads = 4\nseq = 64\n", encoding="utf-8")
check_refusals()
check_help()
check_plan()
check_fit()
check_paper_case()
