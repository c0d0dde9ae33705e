# SPDX-License-Identifier: BSD-3-Clause
"""scripts/timeline draws what run and predict have kept, as pictures and as traces for Perfetto, and says clearly when it cannot. Called with the
program too, which predicts."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree

import numpy
from matplotlib.collections import LineCollection
from support import FOLDER, REPOSITORY, SAMPLE, accepted, refused, run_all
from minitaw.record import load
from minitaw.timeline import PHASES, draw, measured_timeline, predicted_timelines, rows_of

PROGRAM = sys.argv[4]
DECK = "ranks = 4\ngroups = 2\ndtype = 'bf16'\nlayers = 5\nhidden = 32\nheads = 4\nseq = 64\n"

def check_sample():
    """Of the made-up step: who is where, and which rectangles are whose."""
    timeline = measured_timeline(load(SAMPLE).cases[0])
    assert timeline.groups == [1, 2] and timeline.lanes[0] == "compute" and timeline.length == 1.25
    assert [event.text() for event in timeline.events] == ["F s2 m1", "send G2 m1 to r2", "recv G2 m1 from r0", "broadcast E, root r1", "update W4"]
    assert [event.phase for event in timeline.events] == ["F", "gradients", "gradients", "embeddings", "U"]
    assert timeline.events[0]._replace(kind="join").phase is None
    assert rows_of(timeline)[0] == [0] * 5
    found = draw([timeline]).axes[0].collections
    boxes = [path.get_extents() for some in found if some.get_label()[0] != "_" for path in some.get_paths()]
    sizes = [(box.x0, box.x1, box.height) for box in sorted(boxes, key=lambda box: box.x0)]
    assert numpy.allclose(sizes, [(0, 0.75, 0.5), (0.125, 0.5, 1), (0.25, 0.75, 0.5), (0.375, 1.25, 0.5), (1, 1.0625, 1)]), sizes
    (arrow,) = (line for some in found if isinstance(some, LineCollection) for line in some.get_segments())
    sent, received = ([box.y0 + box.height / 2 for box in boxes if box.x0 == begin] for begin in (0.25, 0))
    assert numpy.allclose(arrow, [(0.25, *sent), (0.75, *received)]), (arrow, sent, received)
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
    return [title.split(":")[0] for title in re.findall(r">([^<>]*[(](?:predicted|measured)[)])</text>", text)]

def predict(*arguments):
    command = [PROGRAM, "predict", "deck.toml", "--machine", REPOSITORY / "inputs/machines/dgx-h100.toml", *arguments]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=FOLDER, timeout=120)

def check_predictions():
    """All cases of the deck, in its order, with every action; of replicas that are alike one. And measured beside predicted."""
    (FOLDER / "deck.toml").write_text(DECK)
    for settings, titles in (((), ["tawpipe"]), (("--set", "schedule=tawpipe,zb1,weipipe"), ["tawpipe", "zb1", "weipipe"])):
        done = predict(*settings, "--timeline", "predicted.json")
        assert done.returncode == 0 and done.stderr == "", done
        assert titles_of("predicted.json") == titles, settings
    predict("--set", "ranks=24", "--set", "groups=3", "--set", "replicas=3", "--set", "micro_batches=24", "--set", "layers=8", "--timeline", "alike.json")
    (one,) = predicted_timelines(FOLDER / "alike.json")
    assert one.heading == "tawpipe: 8 ranks in groups 8, the first of 3 replicas (predicted)" and "DGX H100" in one.note, one.heading
    predict("--timeline", "predicted.json")
    (one,) = predicted_timelines(FOLDER / "predicted.json")
    program = subprocess.run([PROGRAM, "plan", "deck.toml", "--program", "--adapters", "8"], capture_output=True, text=True, cwd=FOLDER, check=True).stdout
    assert len(one.events) == len(re.findall(r"^ +-?[0-9]+ [a-z]", program, re.MULTILINE))
    messages = sum(event.kind == "send" for event in one.events)
    phases = [event["ph"] for event in trace_of("predicted.json")]
    assert phases.count("s") == phases.count("f") == messages > 0
    assert titles_of(SAMPLE, "predicted.json", "--case", 0)[1:] == ["tawpipe"]
    predict("--set", "ranks=12", "--set", "layers=12", "--timeline", "predicted.json")
    accepted("timeline", "predicted.json", "-o", "large.png")
    assert (FOLDER / "large.png").read_bytes().startswith(b"\x89PNG")
    for file, says in (("step.svg", ".json"), ("missing/step.json", "cannot be written")):
        done = predict("--timeline", file)
        assert done.returncode == 2 and says in done.stderr and done.stderr.count("\n") == 1, done

def check_refusals():
    (FOLDER / "other.json").write_text("{}")
    zero = (SAMPLE, "--case", 0)
    for arguments, says in (((SAMPLE,), "--case chooses some"), ((SAMPLE, "--case", 1), "has no timeline"), ((SAMPLE, "--case", 7), "no case 7"),
                            ((SAMPLE, "--case", "first"), "no case first"), ((*zero, "-o", "x.gif"), ".png"), ((*zero, "-o", "no/such/x.json"), "cannot be written"),
                            ((*zero, "-o", "no/such/x.png"), "cannot be written"),
                            ((REPOSITORY / "README.md",), "not a miniTaw result"), (("missing.json",), "cannot be read"), (("other.json",), "no timeline")):
        refused("timeline", *arguments, says=says)

run_all(check_sample, check_predictions, check_refusals)
