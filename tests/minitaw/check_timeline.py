"""scripts/timeline draws what run and plan have kept, as pictures and as traces for Perfetto, and says clearly when it cannot. Called with the
program too, which plans and runs."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree

from support import FOLDER, REPOSITORY, SAMPLE, accepted, refused
from minitaw.record import load
from minitaw.timeline import PHASES, measured_timeline, rows_of

PROGRAM = sys.argv[4]
DECK = "ranks = 4\ngroups = 2\nlayers = 5\nhidden = 32\nheads = 4\nseq = 64\n"
SMALL = 'schedule = "serial"\nlayers = 2\nhidden = 16\nheads = 2\nvocab = 256\nseq = 8\nsteps = 3\nmicro_batches = 2\n'


def minitaw(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, cwd=FOLDER, timeout=120)
    assert done.returncode == 0, f"{arguments}: exit {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def check_sample():
    """Of the made-up step: who is where, and which rectangles are whose."""
    timeline = measured_timeline(load(SAMPLE).cases[0])
    assert timeline.groups == [1, 2] and timeline.lanes[0] == "compute" and timeline.length == 1.25
    assert [event.text() for event in timeline.events] == ["F s2 m1", "send G2 m1 to r2", "recv G2 m1 from r0", "broadcast E, root r1", "update W4"]
    assert [event.phase for event in timeline.events] == ["F", "gradients", "gradients", "embeddings", "U"]
    assert timeline.events[0]._replace(kind="join").phase is None
    assert rows_of(timeline)[0] == [0] * 5
    trace = trace_of(SAMPLE, "--case", 0)
    slices = [event for event in trace if event["ph"] == "X"]
    assert [event["dur"] for event in slices] == [375000, 500000, 750000, 875000, 62500] and {event["pid"] for event in slices} == {1, 2, 3}
    (start,), (finish,) = ([event for event in trace if event["ph"] == phase] for phase in "sf")
    assert start["id"] == finish["id"] and start["pid"] == 1 and finish["pid"] == 3 and start["ts"] == finish["ts"] == 500000
    assert {event["cat"] for event in slices} <= {name for name, _ in PHASES.values()}


def trace_of(*arguments):
    accepted("timeline", *arguments, "-o", "step.json")
    return json.loads((FOLDER / "step.json").read_text(encoding="utf-8"))["traceEvents"]


def titles_of(*arguments):
    """Of the panels of a picture."""
    accepted("timeline", *arguments, "-o", "step.svg")
    text = (FOLDER / "step.svg").read_text(encoding="utf-8")
    xml.etree.ElementTree.fromstring(text)
    return [title.split(":")[0] for title in re.findall(r">([^<>]*[(](?:planned|measured)[)])</text>", text)]


def check_plans():
    """Cases are drawn in the order in which plan was asked for them."""
    (FOLDER / "deck.toml").write_text(DECK)
    schedules = ("--set", "schedule=tawpipe,zb1,weipipe")
    for cases, titles in (((), ["tawpipe"]), (("--case=2",), ["weipipe"]), (("--case=1,0",), ["zb1", "tawpipe"]),
                          (("--case=all", "--flops=1T"), ["tawpipe", "zb1", "weipipe"])):
        minitaw("plan", "deck.toml", *schedules, "--timeline", "plan.json", *cases)
        assert titles_of("plan.json") == titles, cases
    (case,) = json.loads(minitaw("plan", "deck.toml", "--timeline", "plan.json", "--json"))["cases"]
    phases, messages = [event["ph"] for event in trace_of("plan.json")], case["messages"]
    assert phases.count("s") == phases.count("f") == sum(messages[kind] for kind in messages if "ween" in kind or "side" in kind)
    minitaw("plan", "deck.toml", "--set", "ranks=12", "--set", "layers=12", "--timeline", "plan.json")
    accepted("timeline", "plan.json", "-o", "large.png")
    assert (FOLDER / "large.png").read_bytes().startswith(b"\x89PNG")


def check_planned():
    """The plan of a measured step, in which every action takes its mean: means add up to the same time."""
    (FOLDER / "small.toml").write_text(SMALL)
    (FOLDER / "small.h5").unlink(missing_ok=True)
    minitaw("run", "small.toml", "--timeline", "-o", "small.h5")
    trace = trace_of("small.h5", "--planned", "--program", PROGRAM)
    computed = [sum(event["dur"] for event in trace if event["ph"] == "X" and event["name"].startswith("F s") and event["pid"] == rank)
                for rank in (1, 2)]
    assert computed[0] > 0 and abs(computed[0] - computed[1]) < 1e-3 * computed[1], computed
    assert titles_of("small.h5", "--planned", "--program", PROGRAM) == ["serial", "serial, 1 ranks in groups 1, 8 tokens (measured)"]


def check_refusals():
    (FOLDER / "other.json").write_text("{}")
    zero = (SAMPLE, "--case", 0)
    for arguments, says in (((SAMPLE,), "--case chooses some"), ((SAMPLE, "--case", 1), "has no timeline"), ((SAMPLE, "--case", 7), "no case 7"),
                            ((SAMPLE, "--case", "first"), "no case first"), ((*zero, "-o", "x.gif"), ".png"), ((*zero, "-o", "no/such/x.json"), "cannot be written"),
                            ((*zero, "-o", "no/such/x.png"), "cannot be written"), ((*zero, "--planned", "--program", "nothing"), "--program"),
                            ((*zero, "--planned", "--program", PROGRAM), "--planned"),  # what no version has planned
                            ((REPOSITORY / "README.md",), "not a miniTaw result"), (("missing.json",), "cannot be read"), (("other.json",), "no timeline")):
        refused("timeline", *arguments, says=says)


check_sample()
check_plans()
check_planned()
check_refusals()
