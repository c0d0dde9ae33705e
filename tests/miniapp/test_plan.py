# SPDX-License-Identifier: BSD-3-Clause
"""The figures of minitaw plan, reckoned again from the text of the program, by hand, or from its
JSON. Bytes and memory of every schedule by formulas: tests/schedule."""

import collections
import json
import pathlib
import re
import shlex

import pytest
from programs import (
    JSON_HEAD,
    MEMORY_KINDS,
    MINITAW,
    REPOSITORY,
    minitaw,
    output_of,
    says,
    settings,
)

# six ranks in groups of three sizes, of which every other one has two blocks
ODD = """groups = "1+2+3"
layers = 9
hidden = 32
heads = 4
kv_heads = 2
vocab = 50
seq = 16
micro_batches = 12
ffn = 80
dtype = "bf16"
"""
PLAIN = "ranks = 4\ngroups = 2\nlayers = 5\nhidden = 32\nheads = 4\nseq = 64\n"
NODE = [0, 1, 1, 2, 2, 2]
# Elements of a block, in which the 32 numbers of a gain take 64.
BLOCK = 2 * 64 + 32 * (32 + 2 * 16 + 32) + 3 * 32 * 80
# 100 rows and a gain, in six parts that are multiples of 64.
EMBEDDINGS = 6 * 576
KINDS = {
    "W": "weights",
    "G": "gradients",
    "A": "activations",
    "D": "activations",
    "E": "embeddings",
}
# Bytes of an element that goes round the ring of all ranks: sums are kept in fp32.
RINGS = {"all_gather": 2, "reduce_scatter": 4}
VISITS = ("F", "BW", "B", "W")
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@pytest.fixture(autouse=True)
def decks(own_folder):
    pathlib.Path("odd.toml").write_text(ODD)
    pathlib.Path("deck.toml").write_text(PLAIN)


def accepted(*arguments):
    return output_of(minitaw("plan", *arguments))


def cases(*arguments):
    return json.loads(accepted(*arguments, "--json"))["cases"]


@pytest.mark.parametrize("schedule", ["weipipe", "zb1"])
def test_account(schedule):
    words = ("odd.toml", *settings(schedule=schedule))
    ranks = accepted(*words, "--program").split("\nrank ")[1:]
    actions = [[line.split() for line in rank.splitlines()[1:]] for rank in ranks]
    (case,) = cases(*words, "--device-memory", "8G")
    assert case["shards"] == 6
    check_bytes(case, ranks)
    check_ticks(case, actions)
    check_memory(case, ranks)
    count = sum(map(len, actions))
    for host, lines in zip(case["host_bytes"], actions, strict=True):
        # 40 MiB, 92 bytes of each action of all ranks, three times of its own in each step
        process = (40 << 20) + 92 * count + 24 * len(lines) * case["settings"]["steps"]
        assert host["process_estimate"] == process and host["total"] == host["step"] + process


def messages(ranks):
    """(from, to, kind, bytes). Hidden states have 16 tokens of 32 numbers."""
    for rank, actions in enumerate(ranks):
        for kind, number, peer in re.findall(r" send +(\w)(\d+) .*-> r(\d)", actions):
            size = 16 * 32 if kind in "AD" else (2 - int(number) % 2) * BLOCK
            yield rank, int(peer), KINDS[kind], 2 * size
        for action in re.findall("all_gather|reduce_scatter", actions):
            yield rank, (rank + 1) % 6, "embeddings", RINGS[action] * EMBEDDINGS * 5 // 6


def check_bytes(case, ranks):
    inside, between, crossing = (collections.Counter() for _ in range(3))
    for a, b, kind, size in messages(ranks):
        if NODE[a] == NODE[b]:
            inside[kind] += size
        else:
            between[kind] += size
            crossing["out", NODE[a]] += size
            crossing["in", NODE[b]] += size
    for name, sums in (("inside", inside), ("between", between)):
        expected = {kind: sums[kind] for kind in KINDS.values()}
        assert case["bytes_per_step"][name] == expected | {"context": 0, "total": sums.total()}
    assert [group["ranks"] for group in case["groups"]] == [1, 2, 3]
    for way in ("out", "in"):
        found = [group[f"bytes_{way}"] for group in case["groups"]]
        assert found == [crossing[way, group] for group in range(3)]
        busiest = case[f"busiest_{way}"]
        assert busiest["bytes"] == max(found) == found[busiest["group"]]
    if inside["weights"]:  # tells the two apart
        assert case["busiest_out"]["group"] != case["busiest_in"]["group"]


def check_ticks(case, actions):
    computing = [{tick for tick, _, action, *_ in own if action in VISITS} for own in actions]
    moving = {tick for own in actions for tick, lane, *_ in own if lane != "compute"}
    used = [*map(int, moving.union(*computing))]
    assert case["ticks"]["total"] == max(used) - min(used) + 1
    assert case["ticks"]["computing_per_rank"] == [*map(len, computing)]


def check_memory(case, ranks):
    memory, device = case["memory_bytes"], case["device"]
    worst = max(memory["ranks"], key=lambda rank: rank["total"])
    slots = re.findall(r" ([a-z])(\d+)", ranks[worst["rank"]].splitlines()[0])
    counts = dict.fromkeys("htwkgcpabxvdyzefn", 0) | {kind: int(n) for kind, n in slots}
    assert memory["worst"] == worst and case["slots"] == counts | {"rank": worst["rank"]}
    for number, (rank, host) in enumerate(zip(memory["ranks"], case["host_bytes"], strict=True)):
        assert rank["rank"] == number
        assert rank["total"] == host["step"] == sum(rank[kind] for kind in MEMORY_KINDS)
        if case["settings"]["schedule"] == "zb1":  # two, four and twelve bytes a weight
            assert rank["optimiser"] == 3 * rank["gradients"] == 6 * rank["weights"]
    # driver, and the workspace of cuBLASLt, with room for that of so small an attention
    assert device["libraries_estimate_bytes"] == (1 << 30) + (32 << 20)
    assert device["arena_bytes"] == max(rank["total"] - rank["tokens"] for rank in memory["ranks"])


def test_idle_time_by_hand():
    """One micro-batch in two stages, of which the second has the head and one block: each idles
    while the other computes. The step is the model's FLOPs, as memory is fast."""
    changes = settings(schedule="1f1b", ranks=2, groups=1, micro_batches=1, recompute="none")
    said = json.loads(accepted("deck.toml", *changes, "--json", "--flops", "1e6"))
    (case,) = said["cases"]
    idle = case["idle"]
    block = 32 * (4 * 32 + 3 * case["settings"]["ffn"]) + 64 * 32
    head = 32 * case["settings"]["vocab"]
    whole = 5 * block + head
    assert idle["step_s"] == pytest.approx(6 * 64 * whole / 1e6)
    assert idle["share_per_rank"] == pytest.approx([(block + head) / whole, 4 * block / whole])
    assert idle["share"] == pytest.approx(1 / 2)
    assert said["assumed_per_rank"] == {"flops": 1e6, "memory_bytes_per_s": 3.35e12}


def test_the_table_has_the_figures_of_the_json():
    words = ("odd.toml", *settings(schedule="tawpipe:reduce=group,weipipe,fsdp", seq="64,128"))
    lines, found = accepted(*words).split("\n\n")[0].splitlines(), cases(*words)
    assert len(found) == 6 and len({*map(len, lines)}) == 1
    titles = "# case schedule ranks groups seq inside between NIC-out NIC-in".split()
    assert lines[0].split() == [*titles, *MEMORY_KINDS, "memory", "ticks", "idle"]
    units = lines[1].replace("/rank", "").split()[1:-1]
    for number, (line, case) in enumerate(zip(lines[2:], found, strict=True)):
        asked, moved = case["settings"], case["bytes_per_step"]
        *first, ticks, idle = line.split()
        plain = [str(number), asked["schedule"], "6", "1+2+3", str(asked["seq"])]
        assert first[:5] == plain and int(ticks) == case["ticks"]["total"]
        assert float(idle) == pytest.approx(100 * case["idle"]["share"], abs=0.051)
        sizes = [moved[reach]["total"] / 6 for reach in ("inside", "between")]
        sizes += [case[f"busiest_{way}"]["bytes"] for way in ("out", "in")]
        sizes += [*case["memory_bytes"]["worst"].values()][1:]
        for figure, unit, size in zip(first[5:], units, sizes, strict=True):
            assert float(figure) == pytest.approx(size / UNITS[unit], rel=6e-4, abs=5.1e-4)


@pytest.mark.parametrize(
    "changes, names",
    [
        ({"hidden": "32,64", "recompute": "block,none"}, ["hidden", "recompute"]),
        ({"hidden": "32,64", "head_dim": 16}, ["hidden"]),
        ({"heads": "2,4"}, ["heads", "kv_heads"]),
        ({"head_dim": "8,16"}, ["head_dim"]),
        ({"tied": "false,true"}, ["tied"]),
    ],
)
def test_columns_are_settings_that_vary(changes, names):
    """Not what follows from the hidden size and the heads."""
    text = accepted("deck.toml", *settings(**changes))
    named = text.partition("inside")[0].split()
    assert named == ["#", "case", "schedule", "ranks", "groups", *names]


def test_cases_do_not_depend_on_others():
    """Also where micro-batches differ, and hence programs."""
    together = cases("odd.toml", *settings(schedule="tawpipe,fsdp", micro_batches="12,24"))
    assert len(together) == 4
    for case in together:
        keys = {name: case["settings"][name] for name in ("schedule", "micro_batches")}
        assert cases("odd.toml", *settings(**keys)) == [case]


def test_adapters_choose_the_rails_of_tawpipe():
    (case,) = cases("odd.toml", *settings(schedule="tawpipe"), "--adapters", "2")
    assert case["settings"]["schedule"] == "tawpipe:rails=2"


def test_the_text_has_the_figures_of_the_json():
    words = ("odd.toml", *settings(schedule="tawpipe"), "--device-memory", "8G")
    text, (case,) = accepted(*words).split("\n\n")[1], cases(*words)
    worst, ranks = case["memory_bytes"]["worst"]["rank"], case["memory_bytes"]["ranks"]
    assert worst not in (0, 5)
    lines = {f"rank {number} ": [*rank.values()][1:] for number, rank in enumerate(ranks)}
    for reach, sizes in case["bytes_per_step"].items():
        lines[f"{reach} groups"] = sizes.values()
    lines[f"on a host        rank {worst} needs"] = case["host_bytes"][worst].values()
    available, arena, libraries, _, largest = case["device"].values()
    lines["device           fits:"] = arena, libraries, available
    for name, sizes in lines.items():
        (line,) = re.findall(rf"\n  {name}(.*)", text)
        found = re.findall(r"([\d.]+) (B|[KMG]iB)\b", line)
        for (number, unit), size in zip(found, sizes, strict=True):
            assert float(number) == pytest.approx(size / UNITS[unit], abs=0.0051), name
    says(text, f"largest S that fits is {largest}")
    assert text.startswith(
        "case 0: tawpipe, 6 ranks in groups 1+2+3, L = 9, H = 32, S = 16, B = 1, M = 12\n"
    )
    # 9 blocks of 10752 numbers and two gains of 32, 100 rows and a gain of 32. FLOPs: 6 for each
    # number of the blocks, of the head's 50 rows, and of attention, 9 * 16 * 32.
    says(text, "100576 parameters in 6 shards, bf16", "192 tokens, 0.0001186 TFLOP")


MODELS = REPOSITORY / "inputs/models"
# Mistral Nemo: 32 heads of 128 are narrower than its hidden state
NEMO = {"layers": 40, "hidden": 5120, "ffn": 14336, "vocab": 131072}
PUBLISHED = [
    ("llama-3.2-1b", {}, 1_235_814_400),
    ("llama-3.1-8b", {}, 8_030_261_248),
    ("llama-3.1-70b", {}, 70_553_706_496),
    ("llama-3.1-405b", {}, 405_853_388_800),
    ("qwen3-0.6b", {}, 596_049_920),
    ("qwen3-8b", {}, 8_190_735_360),
    ("qwen3-8b", NEMO, 12_247_782_400),
    ("mistral-7b", {}, 7_248_023_552),
    ("mistral-7b", {"vocab": 32000}, 7_241_732_096),
]
# Norms of queries and keys, which the program leaves out: two a block, of 128 weights.
NORMS = {596_049_920: 28 * 2 * 128, 8_190_735_360: 36 * 2 * 128}


@pytest.mark.parametrize("name, changes, published", PUBLISHED)
def test_a_real_model_has_its_published_number_of_parameters(name, changes, published):
    words = (MODELS / f"{name}.toml", *settings(ranks=8, groups=2, micro_batches=16, **changes))
    expected = published - NORMS.get(published, 0)
    found = cases(*words)
    assert {case["settings"]["parameters"] for case in found} == {expected}
    assert {case["settings"]["schedule"] for case in found} >= {"fsdp", "fsdp:hierarchical=on"}
    says(accepted(*words), f" {expected} parameters in ")


def test_each_deck_of_a_real_model_is_held_against_its_number():
    assert {path.stem for path in MODELS.iterdir()} == {name for name, *_ in PUBLISHED}


SHARED = {"schedule": "ddp", "ranks": 3, "groups": 1, "context": 3, "seq": 96, "micro_batches": 1}


@pytest.mark.parametrize("keys, step", [({}, 128), (SHARED, 384)])
def test_the_largest_length_fits_and_the_next_does_not(keys, step):
    """A multiple of 128, and of the chunks that ranks share: six of equal length."""

    def device(**changes):
        words = settings(**(keys | changes))
        return cases("deck.toml", "--device-memory", "3G", *words)[0]["device"]

    plain = device()
    largest = plain["largest_seq"]
    assert plain["fits"] and plain["available_bytes"] == 3 << 30
    assert largest >= step and largest % step == 0
    assert device(seq=largest)["fits"]
    beyond = device(seq=largest + step)
    assert not beyond["fits"] and beyond["largest_seq"] == largest
    assert re.search("DOES NOT FIT: .*; no S fits", accepted("deck.toml", "--device-memory=1M"))


def test_json_begins_with_who_made_it_and_notes_what_is_left_out():
    deck = pathlib.Path("it's a deck.toml")
    deck.write_text(PLAIN)
    words = (deck, *settings(schedule="ddp,fsdp", replicas=2))
    said = json.loads(accepted(*words, "--json"))
    assert [*said][:3] == JSON_HEAD and said["schema"] > 0
    assert said["program"] + "\n" == output_of(minitaw("--version"))
    assert shlex.split(said["command"]) == [*map(str, (MINITAW, "plan", *words, "--json"))]
    note = "left out 1 combination: replicas: ddp has no replicas; use replicas = 1"
    assert said["notes"] == [note]
    assert [case["settings"]["schedule"] for case in said["cases"]] == ["fsdp"]
    assert accepted(*words).startswith(f"# {note}\n")
