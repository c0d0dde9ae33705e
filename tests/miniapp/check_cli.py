"""The command line as a user meets it: exit codes, one sentence on standard error, nothing but JSON where JSON is asked for.
Called with the program, the repository and a folder to write to."""

import json
import os
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
    for option in ("--flops", "--inside", "--between", "--nic"):
        for rate in ("fast", "-1G", "0", "4GB", "nan", "inf", "1e40"):
            refused("plan", DECK, f"{option}={rate}", says=option)
    for rate in ("1Mbit", "mbit", "bit", "1mbits", "-1mbit"):
        refused("plan", DECK, f"--nic={rate}", says="--nic")
    refused("plan", DECK, "--timeline", "step.svg", says=".json")
    refused("plan", DECK, "--timeline", "missing/step.json", says="cannot be written")
    refused("plan", DECK, "--case", "0", says="--timeline")
    for case in ("1", "0,1", "0,", "first", "-1", "0-0"):
        refused("plan", DECK, "--timeline", "step.json", f"--case={case}", says="--case")
    refused("plan", DECK, "--costs", "costs.json", says="--timeline")
    refused("plan", DECK, "--timeline", "step.json", "--costs", "missing.json", says="cannot be read")
    refused("plan", DECK, "--timeline", "step.json", "--costs", DECK, says="no list of costs")
    refused("plan", DECK, "--ranks", "4", says="write --set ranks=VALUE")
    refused("plan", DECK, "--set", "dtype=fp16", says="bf16")
    refused("plan", DECK, "--set", "tp=2", says="tensor parallelism")
    refused("plan", DECK, "--set", "seq_len=64", says='did you mean "seq"')
    refused("plan", DECK, "--set", "learning_rate=1e300", says="more than 100")
    refused("plan", DECK, "--flops", "400", says="did you mean 400T")
    refused("plan", DECK, "--device-memory", "80", says="did you mean 80G")
    refused("run", DECK, "--watchdog", "-1", says="seconds above zero")
    refused("run", "missing.toml", says="cannot be read")
    refused("run", DECK, says="mpiexec")
    refused("verify", DECK, "--set", "dtype=fp64", says="fp32, bf16")
    refused("show", says="FILE")
    refused("show", DECK, says="not a miniTaw result")
    refused("show", "missing.h5", says="cannot be read")
    refused("help", "kyes", says="no help")


def check_lonely_ranks():
    """Where srun and MPI do not understand each other, every rank is alone: refused, and told by the first only."""
    for rank, says in (("0", "srun --mpi=list"), ("3", "")):
        srun = os.environ | {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": rank, "PMI_SIZE": "", "OMPI_COMM_WORLD_SIZE": ""}
        done = subprocess.run([PROGRAM, "run", DECK], capture_output=True, text=True, env=srun, cwd=FOLDER, timeout=60)
        assert done.returncode == 2 and done.stdout == "", f"exit {done.returncode}: {done.stdout}{done.stderr}"
        assert says in done.stderr and done.stderr.count("\n") == (1 if says else 0), done.stderr


def check_help():
    assert accepted("--version").startswith("minitaw ")
    for verb in ("run", "verify", "plan", "show", "topo", "help"):
        assert verb in accepted("--help")
        assert accepted(verb, "--help") and f"minitaw {verb}" in accepted("help", verb)
    assert "micro_batches (" in accepted("help", "keys")
    assert accepted("help", "seq").startswith("seq (")
    assert "tawpipe:cco=on|off" in accepted("help", "tawpipe")
    page = pathlib.Path(REPOSITORY, "docs/keys.md").read_text(encoding="utf-8")
    assert accepted("help", "keys", "--markdown") == page


def check_plan():
    text = accepted("plan", DECK)
    assert "case 0: tawpipe, 4 ranks in groups 2+2" in text
    (case,) = json.loads(accepted("plan", DECK, "--json"))["cases"]
    assert case["settings"]["ranks"] == 4 and len(case["memory_bytes"]["ranks"]) == 4
    for reach in case["bytes_per_step"].values():
        assert reach["total"] == sum(value for key, value in reach.items() if key != "total")
    between = case["bytes_per_step"]["between"]["total"]
    assert between == sum(group["bytes_out"] for group in case["groups"]) > 0
    worst = case["memory_bytes"]["worst"]["total"]
    assert worst == max(rank["total"] for rank in case["memory_bytes"]["ranks"]) > 0
    assert accepted("plan", DECK, "--program").count("\n") > 50


def check_table():
    """One aligned row a case, with the figures of the JSON."""
    arguments = ("plan", DECK, "--set", "schedule=tawpipe,tawpipe:gwps=off,fsdp,zb1", "--set", "seq=64,128")
    lines = accepted(*arguments).split("\n\n")[0].splitlines()
    cases = json.loads(accepted(*arguments, "--json"))["cases"]
    assert len(cases) == 8 and len(lines) == 10, lines
    names, rows = lines[0].lstrip("#").split(), [line.split() for line in lines[2:]]
    ends = [len(line) for line in lines]
    assert len(set(ends)) == 1, f"the lines do not end in one column: {ends}"
    for number, (row, case) in enumerate(zip(rows, cases)):
        figures = dict(zip(names, row))
        assert len(row) == len(names), row
        assert figures["case"] == str(number) and figures["schedule"] == case["settings"]["schedule"]
        assert figures["seq"] == str(case["settings"]["seq"]) and figures["ticks"] == str(case["ticks"]["total"])
        assert figures["w/g/a/b/x"] == "/".join(str(sum(case["slots"].get(kind, 0) for kind in kinds)) for kinds in ("w", "gc", "a", "b", "x"))
        assert figures["idle"] == f"{100 * case['idle_free_transfers']['share']:.1f}"
        between = case["bytes_per_step"]["between"]["total"] / 4
        assert any(abs(float(figures["between"]) * 1024**power - between) <= 6e-4 * between for power in range(4)), row
    assert "M" not in names and "seq" not in accepted("plan", DECK).splitlines()[0]


def check_nic():
    """The bound is the bytes of the group with most, over the rate."""
    arguments = ("plan", DECK, "--set", "groups=1+3", "--nic")
    (case,) = json.loads(accepted(*arguments, "100mbit", "--json"))["cases"]
    most = max(max(group["bytes_out"], group["bytes_in"]) for group in case["groups"])
    assert most > 0 and abs(case["nic_s"] * 12.5e6 - most) < 1e-6 * most
    (same,) = json.loads(accepted(*arguments, "12.5M", "--json"))["cases"]
    assert same == case
    header, _, row = accepted(*arguments, "100mbit").splitlines()[:3]
    figures = dict(zip(header.lstrip("#").split(), row.split()))
    assert abs(float(figures["NIC-time"]) - case["nic_s"]) <= 1e-3 * case["nic_s"], row
    assert "NIC-time" not in accepted("plan", DECK) and "nic_s" not in accepted("plan", DECK, "--json")


def check_timeline():
    """The cases that are asked for, in that order, and every action of each."""
    path = pathlib.Path(FOLDER, "step.json")
    schedules = ("--set", "schedule=tawpipe,zb1,weipipe")
    for cases, titles in (((), ["tawpipe"]), (("--case=2",), ["weipipe"]), (("--case=1,0",), ["zb1", "tawpipe"]),
                          (("--case=all", "--flops=1T"), ["tawpipe", "zb1", "weipipe"])):
        accepted("plan", DECK, *schedules, "--timeline", path, *cases)
        timelines = json.loads(path.read_text(encoding="utf-8"))["timelines"]
        assert [one["title"].split(":")[0] for one in timelines] == titles, cases
        assert ("1 TFLOP/s" if "--flops=1T" in cases else "400 TFLOP/s, 450 GB/s") in timelines[0]["title"]
    actions = sum("after" in line or " compute " in line or " " in line for line in accepted("plan", DECK, "--program").splitlines())
    accepted("plan", DECK, "--timeline", path)
    (one,) = json.loads(path.read_text(encoding="utf-8"))["timelines"]
    assert {len(column) for column in one["events"].values()} == {len(one["events"]["rank"])} and 0 < len(one["events"]["rank"]) <= actions


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
check_lonely_ranks()
check_help()
check_plan()
check_table()
check_nic()
check_timeline()
check_fit()
check_paper_case()
