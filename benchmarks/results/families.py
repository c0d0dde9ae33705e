# SPDX-License-Identifier: BSD-3-Clause
"""Families of schedules on nodes of eight H200, each at its best: it may choose how many ranks
share a sequence, the sizes of micro-batches, replicas, recomputation, what ranks keep, and a
pipeline its stages and slices."""

import itertools
import math

from pages import DECKS, MACHINES, predict, rate_of
from minitaw.command import BadInput

K = 1024
DECK, MACHINE = DECKS / "rivals.toml", MACHINES / "dgx-h100.toml"
NODE = 8  # devices
DEVICE = 141e9  # bytes, of an H200
TOKENS = 8 * K * K  # of a step, about: as near as the micro-batches of a family come
MOST_TOKENS = 1.3 * TOKENS
LENGTHS = (4 * K, 16 * K, 64 * K, 256 * K, 1024 * K)
NODES = (3, 8, 32)
GBITS = (10, 50, 100, 400)
TRIED = 100  # Gbit/s at which all choices are tried
MODELS = {  # layers, H, key and value heads, F, vocabulary
    "0.7B": (24, 1536, 4, 4096, 32000),
    "8B": (32, 4096, 8, 14336, 128256),
    "70B": (80, 8192, 8, 28672, 128256),
}
KEPT = ":fetch=step:reduce=group:reshard=group"  # weights and gradients cross once a step
FAMILIES = {
    "TawPipe": ("tawpipe:shards=block", f"tawpipe:shards=block{KEPT}"),
    "FSDP": ("fsdp:hierarchical=on", "fsdp:hierarchical=on" + KEPT),
    "WeiPipe": ("weipipe",),
    "pipeline": (),
}
RECOMPUTE = "keep-attention", "block"  # the first that fits
PLACE = ("model", "nodes", "seq", "gbits")  # of a row, before its family
CHOSEN = ("schedule", "replicas", "context", "micro_batch", "micro_batches", "recompute")


# Choices.


def model_settings(model, seq):
    names = ("layers", "hidden", "kv_heads", "ffn", "vocab")
    return [*(f"{name}={size}" for name, size in zip(names, MODELS[model])), f"seq={seq}"]


def parameters(model):
    layers, hidden, kv_heads, ffn, vocab = MODELS[model]
    return layers * hidden * (2 * hidden + 2 * 128 * kv_heads + 3 * ffn) + 2 * vocab * hidden


def saved_bytes(model, tokens):
    """Inputs of all blocks, which any recomputation keeps, in bf16."""
    layers, hidden, *_ = MODELS[model]
    return 2 * layers * hidden * tokens


def weight_passing(model, nodes, seq, one_rank_each):
    """Settings of ranks that visit the same blocks: the fewest ranks a sequence that memory may
    allow, and twice as many; replicas as large as the layers allow, and of a node."""
    ranks = NODE * nodes
    layers = MODELS[model][0]
    replicas = [r for r in range(1, nodes + 1) if nodes % r == 0 and ranks // r <= layers][:1]
    replicas = sorted({*replicas, nodes})
    found = []
    for n in (1,) if one_rank_each else (1, 2, 4, 8):
        most = 0.6 * DEVICE / saved_bytes(model, 1)  # tokens of a rank at a time
        batch = max(1, int(min(32 * K, most) * n / seq))
        groups = ranks // n
        rounds = max(1, round(TOKENS / (batch * groups * seq)))
        while batch > 1 and rounds * batch * groups * seq > MOST_TOKENS:
            batch -= 1
        tokens = rounds * batch * groups * seq
        if batch * seq / n <= most and tokens <= MOST_TOKENS and len(found) < 2:
            found.append(
                [
                    f"context={n}",
                    f"micro_batch={batch}",
                    f"micro_batches={rounds * groups}",
                    "replicas=" + ",".join(map(str, replicas)),
                ]
            )
    return found


def pipelines(model, nodes, seq):
    """Settings of pipelines: of stages, ranks a sequence and replicas those with the shortest step
    by the formula of the bubble and the longest stage, if memory may do."""
    layers, hidden, kv_heads, ffn, vocab = MODELS[model]
    ranks = NODE * nodes
    block = hidden * (2 * hidden + 256 * kv_heads + 3 * ffn) + seq * hidden
    ranked = []
    for n, stages in itertools.product((1, 2, 4, 8), range(2, layers + 1)):
        if ranks % (n * stages) != 0:
            continue
        replicas = ranks // (n * stages)
        # As large as a device likes, with enough for all stages.
        batch = max(1, min(16 * K * n, TOKENS // (8 * stages * replicas)) // seq)
        each = max(1, round(TOKENS / (batch * seq * replicas)))
        if each * replicas * batch * seq > MOST_TOKENS:
            continue
        mean = (4 * layers * block + 3 * vocab * hidden) / stages
        longest = max(math.ceil(mean / (4 * block)) * 4 * block, mean)
        for slices in (1, 4, 16):
            if slices > 1 and batch * seq // (slices * n) < 2 * K:
                continue
            in_flight = min(each, (stages - 1 + slices) / slices)
            keys = (2 + stages / slices) * batch * seq * 4 * 128 * kv_heads * layers / stages
            memory = 18 * parameters(model) / stages
            memory += saved_bytes(model, batch * seq / n) / stages * in_flight
            memory += keys if slices > 1 else 0
            share = longest / mean * (1 + (stages - 1) / (3 * slices * each))
            if memory < DEVICE:
                ranked.append((share, n, stages, slices, batch, each * replicas, replicas))
    return [
        [
            f"context={n}",
            f"micro_batch={batch}",
            f"micro_batches={micro_batches}",
            f"replicas={replicas}",
            f"schedule=1f1b:slices={slices},zb1:slices={slices}",
        ]
        for _, n, _, slices, batch, micro_batches, replicas in sorted(ranked)[:12]
    ]


def choices_of(family, model, nodes, seq):
    """Lists of settings, each of which may sweep some keys."""
    if family == "pipeline":
        return pipelines(model, nodes, seq)
    schedules = "schedule=" + ",".join(FAMILIES[family])
    found = weight_passing(model, nodes, seq, family == "WeiPipe")
    return [[*settings, schedules] for settings in found]


# Prediction.


def predicted(program, model, nodes, seq, gbits, settings):
    """Cases that fit; of settings that no schedule takes, none."""
    links = [
        f"nodes={nodes}",
        f"between.rate={gbits} Gbit/s",
        "between.adapters=1",
        f"device.memory={DEVICE / 1e9:.0f} GB",
    ]
    job = [f"ranks={NODE * nodes}", f"group_size={NODE}", *model_settings(model, seq), *settings]
    try:
        return predict(program, DECK, MACHINE, job, links, ["--fitting"])
    except BadInput as error:
        if "minitaw: " not in str(error):  # not a refusal
            raise
        return []


def settings_of(values):
    """The choices of a case as settings."""
    return [f"{name}={values[name]}" for name in CHOSEN]


def leaders(cases, family, gbits):
    """The fastest of each schedule and number of replicas, as many of them as are predicted again.
    A pipeline that is fastest at TRIED is at faster links."""
    best = {}
    for case in sorted(cases, key=lambda case: -case["tokens_per_s"]):
        kind = case["settings"]["schedule"], case["settings"]["replicas"]
        best.setdefault(kind, case)
    count = 4
    if family == "pipeline":
        count = 2 if gbits < TRIED else 1
    return list(best.values())[:count]


def row_of(place, family, case):
    settings = case["settings"]
    names = ("schedule", "ranks", *CHOSEN[1:])
    return {
        **dict(zip(PLACE, map(str, place))),
        "family": family,
        **{name: settings[name] for name in names},
        "tokens_per_s_gpu": f"{rate_of(case):.1f}",
        "memory_gb": f"{case['memory_bytes'] / 1e9:.1f}",
    }


def tried(program, family, *place):
    """Cases of all choices at links of TRIED. Of pipelines, three choices that fit are enough."""
    found, fitting = [], 0
    for settings in choices_of(family, *place):
        if family == "pipeline" and fitting == 3:
            break
        for recompute in RECOMPUTE:
            choice = [*settings, f"recompute={recompute}"]
            if cases := predicted(program, *place, TRIED, choice):
                found += cases
                fitting += 1
                break
    return found


def rows_for(program, *place):
    """Of a model, nodes and a length: one row a rate and family that fits."""
    cases_of_family = {family: tried(program, family, *place) for family in FAMILIES}
    rows = []
    for gbits in GBITS:
        for family, known in cases_of_family.items():
            cases = known
            if gbits != TRIED:
                cases = [
                    case
                    for leader in leaders(known, family, gbits)
                    for case in predicted(program, *place, gbits, settings_of(leader["settings"]))
                ]
            if cases:
                best = max(cases, key=lambda case: case["tokens_per_s"])
                rows.append(row_of((*place, gbits), family, best))
    return rows
