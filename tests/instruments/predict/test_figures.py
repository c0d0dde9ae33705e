# SPDX-License-Identifier: BSD-3-Clause
"""Every figure of minitaw predict by hand, and its search for the best case."""

import json
import math
import pathlib

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


def test_best_shows_the_fastest_of_each_family():
    """Which these are: test_search.cpp."""
    few = {"layers": 4, "machine": TWO_EACH + "adapters = 2\n", "schedule": "ddp"}
    words = "--best", "--machine-set=device.memory=1 MB", "--machine-set=between.rate=3 MB/s"
    said = predicted(*words, **few)
    steps = [found["step_s"] for found in said["cases"]]
    families = [found["settings"]["schedule"].partition(":")[0] for found in said["cases"]]
    assert steps == sorted(steps) and len({*families}) == len(families)
    planned, lost, *tie = said["notes"]
    says(planned, "cases planned")
    says(lost, "does not fit: ddp")
    assert sorted(lost.partition(": ")[2].split(", ") + families) == FAMILIES
    close = [name for name, step in zip(families, steps) if step <= 1.01 * steps[0]]
    assert tie == [f"a tie, within 1 % of the fastest: {', '.join(close)}"] * (len(close) > 1)
    assert predict(*words, **few).startswith(f"# {planned}\n# {lost}\n")
    late = predicted(*words, "--time-limit=1e-9", **few)
    assert late["cases"] == [] and late["notes"][1].startswith("not tried: ")


FAMILIES = sorted(["1f1b", "ddp", "fsdp", "tawpipe", "weipipe", "zb1", "zb2", "zbv"])
HALVED = {
    "between": "between.rate=20 MB/s",
    "inside": "inside.rate=0.5 GB/s",
    "memory": "device.memory_rate=5e8 GB/s",
}
RATED = {"layers": 4, "machine": TWO_EACH, "schedule": "fsdp,1f1b", "seq": "16,32"}
RATED |= {"repeats": 2, "warmup": 3}


def fastest(*arguments):
    """Tokens per second of the fastest case of each length."""
    best = {}
    for found in predicted(*arguments, **RATED)["cases"]:
        seq = found["settings"]["seq"]
        best[seq] = max(best.get(seq, 0), found["tokens_per_s"])
    return best


def mean(rates):
    return math.prod(rates) ** (1 / len(rates))


def test_a_rating_is_the_mean_over_lengths():
    """Of the deck as it is and with half of each part, from cases predicted one by one. What is best
    is so when it is predicted alone, and no slower."""
    said = predicted("--rating", **RATED)
    deck, best, network = said["ratings"]
    assert [one["of"] for one in said["ratings"]] == ["deck", "best", "network"]
    whole = fastest()
    assert [one["tokens_per_s"] for one in deck["cases"]] == approx([whole[16], whole[32]])
    assert deck["tokens_per_s"] == approx(mean(whole.values()))
    for part, change in HALVED.items():
        half = mean(fastest(f"--machine-set={change}").values())
        loss = approx(1 - half / deck["tokens_per_s"], abs=1e-9)
        assert deck["loss"][f"half_{part}"] == loss
    for one in said["ratings"]:
        assert one["demand_tokens_per_s"] == approx(0.95 * one["tokens_per_s"])
        for found in one["cases"]:
            names = "schedule replicas groups micro_batch micro_batches recompute seq".split()
            alone = case(
                layers=4,
                machine=TWO_EACH,
                **{name: found["settings"][name] for name in names},
            )
            assert found["step_s"] == approx(alone["step_s"])
    assert all(b["step_s"] <= d["step_s"] for b, d in zip(best["cases"], deck["cases"]))
    (shown,) = network["cases"]
    chosen = [shown["settings"][name] for name in ("schedule", "seq", "micro_batch", "replicas")]
    assert chosen == ["fsdp:hierarchical=on", 16, 1, 1]
    # Two repetitions of three steps, and of as many as take eleven seconds together.
    step = shown["step_s"]
    assert shown["steps"] == math.ceil(5.5 / step)
    assert network["hours"] == approx(2 * (3 + shown["steps"]) * step / 3600)
    text = predict("--rating", **RATED)
    says(text, "limited by", "half between", "demand", f"{deck['cases'][0]['limit']}\n")


@pytest.mark.parametrize(
    "machine, limit, lost",
    [("between.rate=1 kB/s", "network", "between"), ("between.rate=1e6 GB/s", "computing", None)],
)
def test_what_limits_is_told(machine, limit, lost):
    said = predicted("--rating", f"--machine-set={machine}", **RATED)
    deck = said["ratings"][0]
    assert all(found["limit"].startswith(f"{limit} ") for found in deck["cases"])
    assert lost is None or deck["loss"][f"half_{lost}"] == approx(0.5, abs=0.01)
    assert lost or max(deck["loss"].values()) < 0.05


def test_a_rating_chooses_the_fewest_replicas():
    """Eight ranks on four nodes: rings take a rank for each of four blocks at most, FSDP any number.
    The network figure keeps to that. Of one node there is none."""
    four = INSIDE.format(4, 2) + BETWEEN
    words = dict(layers=4, schedule="fsdp,weipipe", micro_batches=8)
    for changes, of_deck, of_network in (
        ({}, 2, 2),
        ({"schedule": "fsdp"}, 1, 1),
        ({"replicas": 4}, 4, 2),
    ):
        said = predicted("--rating", machine=four, **words | changes)
        assert said["notes"][0].startswith(f"replicas: {of_network} are the fewest")
        deck, _, network = (one["cases"][0]["settings"] for one in said["ratings"])
        assert (deck["replicas"], network["replicas"]) == (of_deck, of_network)
    alone = predicted("--rating", machine=INSIDE.format(1, 2), **words)
    assert [one["of"] for one in alone["ratings"]] == ["deck", "best"]
    assert alone["ratings"][0]["loss"]["half_between"] is None
