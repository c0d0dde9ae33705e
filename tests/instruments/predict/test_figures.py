# SPDX-License-Identifier: BSD-3-Clause
"""Every figure of minitaw predict by hand, and its search for the best case."""

import json
import pathlib
import re

from programs import minitaw, output_of, says, settings
from pytest import approx

MACHINE = (
    'nodes = 2\nranks_per_node = {}\n[device]\nmemory_rate = "1e9 GB/s"\n[device.fp32]\n'
    'peak = "2 GFLOP/s"\nproducts = "1 GFLOP/s"\n'
    '[inside]\nrate = "1 GB/s"\n[between]\nrate = "{}"\n'
)
DECK = "layers = {}\nhidden = 64\nheads = 2\nffn = 128\nvocab = 64\nseq = 16\nmicro_batches = 4\n"
ONE_EACH = 1, "40 MB/s"


def call(verb, *arguments, **changes):
    return output_of(minitaw(verb, "deck.toml", *arguments, *settings(**changes)))


def predict(*arguments, layers=2, machine=MACHINE.format(*ONE_EACH), **changes):
    pathlib.Path("deck.toml").write_text(DECK.format(layers))
    pathlib.Path("machine.toml").write_text(machine)
    return call("predict", "--machine=machine.toml", *arguments, **changes)


def predicted(*arguments, **changes):
    return json.loads(predict("--json", *arguments, **changes))


def case(*arguments, **changes):
    (only,) = predicted(*arguments, **changes)["cases"]
    return only


def planned(**changes):
    (only,) = json.loads(call("plan", "--json", ranks=2, **changes))["cases"]
    return only


# Seconds at 1 GFLOP/s of a sequence's products, head and attention scores, and of a ring of two at
# 40 MB/s, where all bytes cross once each way.
MATRICES, HEAD, SCORES = (
    2 * 16 * products / 1e9 for products in (64 * (4 * 64 + 3 * 128), 64 * 64, 16 * 64)
)
SEQUENCE = 2 * 3 * (MATRICES + SCORES) + 3 * HEAD
BLOCK = 4 * (2 * 64 + 64 * (4 * 64 + 3 * 128)) / 40e6
EMBEDDINGS = 4 * 64 * 129 / 40e6
CHANGES = {"schedule": "ddp", "micro_batch": 3, "recompute": "none"}


def test_figures_of_a_step_by_hand():
    """Two blocks, data parallel on two nodes of a rank: each has two micro-batches of three
    sequences. The gradients of the second block go during the backward pass of the first; the rest
    waits."""
    found = case(**CHANGES)
    assert BLOCK < 3 * 2 * (MATRICES + SCORES), "the case is to hide the second block"
    step, moving = 6 * SEQUENCE + BLOCK + EMBEDDINGS, 2 * BLOCK + EMBEDDINGS
    ranks = planned(**CHANGES)["memory_bytes"]["ranks"]
    account = {
        "step_s": step,
        "tokens_per_s": 12 * 16 / step,
        "mfu": 12 * SEQUENCE * 1e9 / step / (2 * 2e9),
        "compute": 6 * SEQUENCE / step,
        "idle": 0,
        "overlap": BLOCK / moving,
        "transfer_s": moving,
        "adapter_busy": moving / step,
        "bytes_between": 2 * moving * 40e6,
        # tokens lie in host memory
        "memory_bytes": max(rank["total"] - rank["tokens"] for rank in ranks),
    }
    exposed = {"gradients": BLOCK / step, "embeddings": EMBEDDINGS / step}
    nothing = dict.fromkeys(("weights", "activations", "context"), 0)
    assert found.pop("exposed") == approx(exposed | nothing, rel=1e-6, abs=1e-9)
    assert found.pop("fits") is None
    del found["settings"]
    assert found == approx(account, rel=1e-6, abs=1e-9)

    names, _, row = (line.lstrip("#").split() for line in predict(**CHANGES).splitlines()[1:])
    cells = dict(zip(names[1:], map(float, row[1:]), strict=True))
    assert cells == approx(
        {
            "step": step,
            "rate": account["tokens_per_s"],
            "rate/rank": account["tokens_per_s"] / 2,
            "MFU": 100 * account["mfu"],
            "compute": 100 * account["compute"],
            "exposed": 100 * sum(exposed.values()),
            "idle": 0,
            "adapter": 100 * moving / step,
            "memory": 0,
        },
        rel=6e-3,
    )


def test_a_rank_idles_while_the_other_stage_computes():
    """Two stages of a block each and one micro-batch."""
    found = case(schedule="1f1b", micro_batches=1, recompute="none")
    step = SEQUENCE + 2 * 4 * 16 * 64 / 40e6
    share = SEQUENCE / 2 / step
    assert [found[name] for name in ("step_s", "compute", "idle")] == approx([step, share, share])


def test_memory_decides_what_fits():
    large = case(vocab=400000, **CHANGES)["memory_bytes"]
    printed = float(predict(vocab=400000, **CHANGES).split()[-1])
    assert printed == approx(large / 2**30, abs=0.0051) and printed > 0.05
    needed = case(**CHANGES)["memory_bytes"]
    for memory, words, fits in ((needed - 1, "does not fit\n", False), (needed, "0.00\n", True)):
        option = f"--machine-set=device.memory={memory} B"
        assert predict(option, **CHANGES).endswith(words)
        assert case(option, **CHANGES)["fits"] is fits


def test_bytes_between_nodes_are_those_of_the_plan():
    """Node 1 gets more than it sends. Without a network nothing is sent or busy."""
    found = case(schedule="tawpipe")
    groups = planned(schedule="tawpipe", groups=2)["groups"]
    out, into = ([group[way] for group in groups] for way in ("bytes_out", "bytes_in"))
    assert into[1] > 1.1 * out[1]
    assert found["bytes_between"] == sum(out)
    assert found["adapter_busy"] == approx(max(out + into) / 40e6 / found["step_s"])
    one_node = MACHINE.partition("[between]")[0].format(2).replace("nodes = 2", "nodes = 1")
    alone = case(machine=one_node, schedule="ddp")
    assert (alone["adapter_busy"], alone["bytes_between"]) == (None, 0)


def test_best_shows_the_ten_fastest_and_counts_the_others():
    """Which these are: test_search.cpp."""
    machine = MACHINE.format(2, "3 MB/s") + "adapters = 2\n"
    few = {"layers": 4, "machine": machine, "schedule": "ddp"}
    words = "--best", "--machine-set=device.memory=2 MB"
    said = predicted(*words, **few)
    steps = [found["step_s"] for found in said["cases"]]
    assert steps == sorted(steps) and len(steps) == 10
    (note,) = said["notes"]
    tried, *lost = map(int, re.findall(r"(\d+) ", note))
    assert tried == len(steps) + sum(lost)
    says(note, "tried", "do not fit", "cannot be faster", "are slower")
    text = predict(*words, **few)
    says(text, f"# {note}", said["cases"][0]["settings"]["schedule"])
