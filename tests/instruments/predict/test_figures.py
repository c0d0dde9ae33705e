# SPDX-License-Identifier: BSD-3-Clause
"""Every figure of minitaw predict by hand, and its search for the best case."""

import json
import pathlib
import re

import pytest
from programs import minitaw, output_of, says, settings
from pytest import approx

INSIDE = (
    'nodes = {}\nranks_per_node = {}\n[device]\nmemory_rate = "1e9 GB/s"\n[device.fp32]\n'
    'peak = "2 GFLOP/s"\nproducts = "1 GFLOP/s"\n[inside]\nrate = "1 GB/s"\n'
)
BETWEEN = '[between]\nrate = "40 MB/s"\n'
ONE_EACH, TWO_EACH = (INSIDE.format(2, ranks) + BETWEEN for ranks in (1, 2))
DECK = "layers = {}\nhidden = 64\nheads = 2\nffn = 128\nvocab = 64\nseq = 16\nmicro_batches = 4\n"


def call(verb, *arguments, **changes):
    return output_of(minitaw(verb, "deck.toml", *arguments, *settings(**changes)))


def predict(*arguments, layers=2, machine=ONE_EACH, **changes):
    pathlib.Path("deck.toml").write_text(DECK.format(layers))
    pathlib.Path("machine.toml").write_text(machine)
    return call("predict", "--machine=machine.toml", *arguments, **changes)


def predicted(*arguments, **changes):
    return json.loads(predict("--json", *arguments, **changes))


def case(*arguments, **changes):
    (only,) = predicted(*arguments, **changes)["cases"]
    return only


def planned(**changes):
    (only,) = json.loads(call("plan", "--json", **changes))["cases"]
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
    ranks = planned(ranks=2, **CHANGES)["memory_bytes"]["ranks"]
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

    row = predict(**CHANGES).splitlines()[-1].split()[1:]
    shares = account["mfu"], account["compute"], sum(exposed.values()), 0, moving / step
    percent = [100 * share for share in shares]
    rate, memory = account["tokens_per_s"], 0
    assert [*map(float, row)] == approx([step, rate, rate / 2, *percent, memory], rel=6e-3)


def test_a_rank_idles_while_the_other_stage_computes():
    """Two stages of a block each and one micro-batch."""
    found = case(schedule="1f1b", micro_batches=1, recompute="none")
    step = SEQUENCE + 2 * 4 * 16 * 64 / 40e6
    share = SEQUENCE / 2 / step
    assert [found[name] for name in ("step_s", "compute", "idle")] == approx([step, share, share])


def test_memory_decides_what_fits():
    large = predict(vocab=400000, **CHANGES)
    assert float(large.split()[-1]) == approx(
        case(vocab=400000, **CHANGES)["memory_bytes"] / 2**30, abs=0.0051
    )
    needed = case(**CHANGES)["memory_bytes"]
    for memory, words, fits in ((needed - 1, "does not fit\n", False), (needed, "0.00\n", True)):
        option = f"--machine-set=device.memory={memory} B"
        assert predict(option, **CHANGES).endswith(words)
        assert case(option, **CHANGES)["fits"] is fits


@pytest.mark.parametrize("schedule", ["tawpipe", "fsdp", "fsdp:hierarchical=on"])
def test_bytes_between_nodes_are_those_of_the_plan(schedule):
    """Of sends, rings and chains. Without a network nothing is sent or busy."""
    deck = {"schedule": schedule, "layers": 4}
    found = case(machine=TWO_EACH, **deck)
    groups = planned(schedule=schedule, ranks=4, groups=2)["groups"]
    out, into = ([group[way] for group in groups] for way in ("bytes_out", "bytes_in"))
    assert found["bytes_between"] == approx(sum(out))
    assert found["adapter_busy"] == approx(max(out + into) / 40e6 / found["step_s"])
    alone = case(machine=INSIDE.format(1, 4), **deck)
    assert (alone["adapter_busy"], alone["bytes_between"]) == (None, 0)


def test_best_shows_the_ten_fastest_and_counts_the_others():
    """Which these are: test_search.cpp."""
    few = {"layers": 4, "machine": TWO_EACH + "adapters = 2\n", "schedule": "ddp"}
    words = "--best", "--machine-set=device.memory=2 MB", "--machine-set=between.rate=3 MB/s"
    said = predicted(*words, **few)
    steps = [found["step_s"] for found in said["cases"]]
    assert steps == sorted(steps) and len(steps) == 10
    (note,) = said["notes"]
    tried, *lost = map(int, re.findall(r"(\d+) ", note))
    assert tried == len(steps) + sum(lost)
    says(note, "tried", "do not fit", "cannot be faster", "are slower")
    says(predict(*words, **few), f"# {note}", said["cases"][0]["settings"]["schedule"])
