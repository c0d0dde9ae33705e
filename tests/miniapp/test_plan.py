# SPDX-License-Identifier: BSD-3-Clause
"""The figures of minitaw plan, reckoned again from the text of the program, by hand, or from its
JSON."""

import collections
import json
import pathlib
import re
import shlex

import pytest
from programs import JSON_HEAD, MEMORY_KINDS, MINITAW, minitaw, output_of, refused, settings

# six ranks in groups of three sizes: T = 16 tokens, H = 32 and d = 8 in bf16
FFN = 80
ODD = f"""groups = "1+2+3"
layers = 9
hidden = 32
heads = 4
kv_heads = 2
vocab = 50
seq = 16
micro_batches = 12
ffn = {FFN}
dtype = "bf16"
"""
PLAIN = "ranks = 4\ngroups = 2\nlayers = 5\nhidden = 32\nheads = 4\nseq = 64\n"
NODE = [0, 1, 1, 2, 2, 2]
# blocks of each shard
BLOCKS = {"fsdp": [1] * 9} | dict.fromkeys(("tawpipe", "weipipe", "zb1"), [2, 1, 2, 1, 2, 1])
KINDS = {
    "W": "weights",
    "G": "gradients",
    "A": "activations",
    "D": "activations",
    "E": "embeddings",
}
VISITS = ("F", "BW", "B", "W")
CHAINS = ("broadcast", "reduce")
RINGS = ("all_gather", "reduce_scatter")
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@pytest.fixture(autouse=True)
def decks(own_folder):
    pathlib.Path("odd.toml").write_text(ODD, encoding="utf-8")
    pathlib.Path("deck.toml").write_text(PLAIN, encoding="utf-8")


def accepted(*arguments):
    return output_of(minitaw("plan", *arguments))


def cases(*arguments):
    return json.loads(accepted(*arguments, "--json"))["cases"]


def padded(elements, parts=1):
    """In equal parts, each a multiple of 64 elements."""
    return parts * 64 * -(-elements // (64 * parts))


def elements(blocks):
    """Weights of so many blocks: the 32 numbers of a gain take 64."""
    return blocks * (32 * 64 + 32 * 32 + 2 * 64 + 3 * 32 * FFN)


class Account:
    """What the actions of a program send and compute."""

    def __init__(self, program, blocks):
        self.program, self.blocks = program, blocks
        self.ranks = program.split("\nrank ")[1:]
        self.actions = [[line.split() for line in rank.splitlines()[1:]] for rank in self.ranks]
        self.members = {
            words[1]: [*map(int, words[2:])]
            for words in map(str.split, program.splitlines())
            if words[0] == "communicator"
        }
        self.inside, self.between, self.out, self.into = (collections.Counter() for _ in range(4))
        for rank, lines in enumerate(self.actions):
            for _, _, action, *operands in lines:
                for a, b, size in self.messages(rank, action, operands):
                    self.move(a, b, KINDS[operands[0][0]], size)

    def number(self, name):
        """A number in the head of the program."""
        found = re.search(rf"\n{name} (\d+)", self.program)
        return int(found[1]) if found else 1

    def embeddings(self):
        return padded(101 * 32 + 32, self.number("embeddings_parts"))

    def size(self, what, slot):
        """Bytes of a whole operand; sums are kept in fp32."""
        if what[0] in "AD":
            moved = 16 * 32
        elif what[0] == "E":
            moved = self.embeddings()
        else:
            moved = padded(elements(self.blocks[int(what[1])]), self.number("shard_parts"))
        return moved * (4 if slot[0] in "tf" else 2)

    def messages(self, rank, action, operands):
        """(from, to, bytes): a message at its send, a collective at its root or first member: a
        chain from or to the root, or a ring in six parts."""
        peer = next((int(word[1:]) for word in operands if re.fullmatch(r"r\d", word)), rank)
        if action not in ("send", *CHAINS, *RINGS):
            return []
        slot = next(word for word in operands[1:] if re.fullmatch(r"[htwgcxef]\d", word))
        size = self.size(operands[0], slot)
        if action == "send":
            return [(rank, peer, size)]
        members = self.members[next(word[1:] for word in operands if word[0] == "@")]
        if rank != (peer if action in CHAINS else members[0]):
            return []
        members = members[members.index(rank) :] + members[: members.index(rank)]
        links = [*zip(members, members[1:] + members[:1])]
        if action in RINGS:
            return [(a, b, round(size * 5 / 6)) for a, b in links]
        return [(a, b, size) if action == "broadcast" else (b, a, size) for a, b in links[:-1]]

    def move(self, a, b, kind, size):
        (self.inside if NODE[a] == NODE[b] else self.between)[kind] += size
        if NODE[a] != NODE[b]:
            self.out[NODE[a]] += size
            self.into[NODE[b]] += size


@pytest.mark.parametrize("schedule", BLOCKS)
def test_account(schedule):
    words = ("odd.toml", *settings(schedule=schedule))
    account = Account(accepted(*words, "--program"), BLOCKS[schedule])
    (case,) = cases(*words, "--device-memory", "8G")
    for name, sums in (("inside", account.inside), ("between", account.between)):
        expected = {kind: sums[kind] for kind in KINDS.values()}
        assert case["bytes_per_step"][name] == expected | {"context": 0, "total": sums.total()}
    assert case["groups"] == [
        {"group": g, "ranks": g + 1, "bytes_out": account.out[g], "bytes_in": account.into[g]}
        for g in range(3)
    ]
    for name, sums in (("busiest_out", account.out), ("busiest_in", account.into)):
        assert case[name]["bytes"] == sums[case[name]["group"]] == max(sums.values())
    if schedule == "weipipe":  # tells the two apart
        assert case["busiest_out"]["group"] != case["busiest_in"]["group"]
    check_ticks(case, account)
    check_memory(case, account)
    check_host(case, account)


def check_ticks(case, account):
    computing = [
        {tick for tick, _, action, *_ in lines if action in VISITS} for lines in account.actions
    ]
    used = [
        int(tick)
        for lines in account.actions
        for tick, lane, action, *_ in lines
        if action in VISITS or (lane != "compute" and action not in ("load", "add"))
    ]
    assert case["ticks"]["total"] == max(used) - min(used) + 1
    assert case["ticks"]["computing_per_rank"] == [*map(len, computing)]


def check_memory(case, account):
    """The worst rank and its slots, and, of a pipeline, in which each rank has one shard and both
    ends a slice, what all of them keep."""
    memory, device = case["memory_bytes"], case["device"]
    worst = max(memory["ranks"], key=lambda rank: rank["total"])
    slots = dict(re.findall(r" ([a-z])(\d+)", account.ranks[worst["rank"]].splitlines()[0]))
    assert memory["worst"] == worst
    counts = dict.fromkeys("htwkgcpabxvdyzefn", 0) | {kind: int(n) for kind, n in slots.items()}
    assert case["slots"] == counts | {"rank": worst["rank"]}
    for number, rank in enumerate(memory["ranks"]):
        assert rank["rank"] == number
        assert rank["total"] == sum(rank[kind] for kind in MEMORY_KINDS)
        if case["settings"]["schedule"] == "zb1":
            ends = account.embeddings() // 2 if number in (0, 5) else 0
            parts = elements(account.blocks[number]), ends
            kept = [sum(256 * -(-size * part // 256) for part in parts) for size in (2, 4, 12)]
            assert [rank["weights"], rank["gradients"], rank["optimiser"]] == kept
    # driver, and the workspace of cuBLASLt, with room for that of so small an attention
    assert device["libraries_estimate_bytes"] == (1 << 30) + (32 << 20)
    assert device["arena_bytes"] == max(rank["total"] - rank["tokens"] for rank in memory["ranks"])
    assert device["available_bytes"] == 8 << 30 and device["fits"]
    assert case["shards"] == len(account.blocks)


def check_host(case, account):
    """Tokens: of each micro-batch that a rank embeds or has a loss of, 16 inputs, targets and
    positions and where up to 16 tokens begin, and the end of the last, in whole eights. The
    process: 40 MiB, 92 bytes of each action of all ranks, and three times of its own in each step.
    """
    actions = sum(map(len, account.actions))
    for rank, host, lines in zip(
        case["memory_bytes"]["ranks"], case["host_bytes"], account.actions, strict=True
    ):
        batches = {
            word
            for _, _, action, *operands in lines
            if action in ("embed", "loss", "dembed")
            for word in operands
            if re.fullmatch(r"m\d+", word)
        }
        assert rank["tokens"] == len(batches) * 4 * (3 * 16 + 17 + 1)
        process = (40 << 20) + 92 * actions + 24 * len(lines) * case["settings"]["steps"]
        assert host["step"] == rank["total"] and host["process_estimate"] == process
        assert host["total"] == rank["total"] + process


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


def columns_of(lines):
    """Titles of a table with aligned columns, and their units."""
    names = lines[0].lstrip("#").split()
    ends = [re.search(rf"[ #]{re.escape(name)}(?= |$)", lines[0]).end() for name in names]
    return names, [lines[1][:end].split(" ")[-1].partition("/")[0] for end in ends]


def test_the_table_has_the_figures_of_the_json():
    words = ("odd.toml", *settings(schedule="tawpipe:reduce=group,weipipe,fsdp", seq="64,128"))
    lines, found = accepted(*words).split("\n\n")[0].splitlines(), cases(*words)
    assert len(found) == 6 and len(lines) == 8 and len({*map(len, lines)}) == 1
    names, units = columns_of(lines)
    for number, (line, case) in enumerate(zip(lines[2:], found)):
        figures = dict(zip(names, line.split(), strict=True))
        setting, worst = case["settings"], case["memory_bytes"]["worst"]
        assert {name: figures[name] for name in ("case", "ticks", "idle", "ranks", "groups")} == {
            "case": str(number),
            "ticks": str(case["ticks"]["total"]),
            "idle": f"{100 * case['idle']['share']:.1f}",
            "ranks": "6",
            "groups": "1+2+3",
        }
        assert (figures["schedule"], figures["seq"]) == (setting["schedule"], str(setting["seq"]))
        sizes = {name: case["bytes_per_step"][name]["total"] / 6 for name in ("inside", "between")}
        sizes |= {f"NIC-{way}": case[f"busiest_{way}"]["bytes"] for way in ("in", "out")}
        sizes |= {kind: worst[kind] for kind in MEMORY_KINDS if kind in names}
        sizes |= {"memory": worst["total"]}
        for name, size in sizes.items():
            expected = size / UNITS[units[names.index(name)]]
            assert float(figures[name]) == pytest.approx(expected, rel=6e-4, abs=5.1e-4), name


@pytest.mark.parametrize(
    "changes, shown, hidden",
    [
        ({}, [], ["micro_batches", "seq"]),
        ({"hidden": "32,64", "dtype": "fp32,bf16"}, ["hidden", "dtype"], ["ffn", "parameters"]),
    ],
)
def test_columns_are_settings_that_vary(changes, shown, hidden):
    names = accepted("deck.toml", *settings(**changes)).splitlines()[0].split()
    assert {*shown} <= {*names} and not {*hidden} & {*names}


def test_cases_do_not_depend_on_others():
    """Also where micro-batches differ, and hence programs."""
    together = cases("odd.toml", *settings(schedule="tawpipe,fsdp", micro_batches="12,24"))
    assert len(together) == 4
    for case in together:
        keys = {name: case["settings"][name] for name in ("schedule", "micro_batches")}
        assert cases("odd.toml", *settings(**keys)) == [case]
    text = accepted("odd.toml", *settings(schedule="fsdp", micro_batches="12,24"))
    assert re.findall(r"\ncase \d: .*, M = (\d+)\n", text) == ["12", "24"]


def test_adapters_choose_the_rails_of_tawpipe():
    (case,) = cases("odd.toml", *settings(schedule="tawpipe"), "--adapters", "2")
    assert case["settings"]["schedule"] == "tawpipe:rails=2"


def line_of(text, name):
    """What follows the name that a line begins with."""
    found = re.search(rf"\n  {re.escape(name)}(.*)", text)
    assert found, (name, text)
    return found[1]


def test_the_text_has_the_figures_of_the_json():
    words = ("odd.toml", *settings(schedule="tawpipe"), "--device-memory", "8G")
    text, (case,) = accepted(*words).split("\n\n")[1], cases(*words)
    memory, device = case["memory_bytes"], case["device"]
    worst = memory["worst"]["rank"]
    assert worst not in (0, 5)
    lines = {f"rank {number} ": [*rank.values()][1:] for number, rank in enumerate(memory["ranks"])}
    lines |= {
        f"{reach} groups": [*case["bytes_per_step"][reach].values()]
        for reach in ("inside", "between")
    }
    lines["on a host"] = [
        case["host_bytes"][worst][name] for name in ("step", "process_estimate", "total")
    ]
    lines["device"] = [
        device[name] for name in ("arena_bytes", "libraries_estimate_bytes", "available_bytes")
    ]
    for name, sizes in lines.items():
        found = re.findall(r"([\d.]+) (B|[KMG]iB)\b", line_of(text, name))
        for (number, unit), size in zip(found, sizes, strict=True):
            assert float(number) == pytest.approx(size / UNITS[unit], abs=0.0051), name
    assert line_of(text, "device").split(":")[0].strip() == "fits"
    assert f"largest S that fits is {device['largest_seq']}" in line_of(text, "device")
    assert f"rank {worst} needs" in line_of(text, "on a host")

    assert text.startswith(
        "case 0: tawpipe, 6 ranks in groups 1+2+3, L = 9, H = 32, S = 16, B = 1, M = 12\n"
    )
    matrices, attention = elements(9) - 9 * 128 + 50 * 32, 9 * 16 * 32
    numbers = [float(n) for n in re.findall(r"\d[\d.e+-]*", line_of(text, "model"))]
    # embedding and gains besides
    assert numbers[:2] == pytest.approx([matrices + 51 * 32 + 9 * 64, 6], rel=6e-4)
    numbers = [float(n) for n in re.findall(r"\d[\d.e+-]*", line_of(text, "step"))]
    assert numbers[:2] == pytest.approx([192, 192e-12 * 6 * (matrices + attention)], rel=6e-4)


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
    assert re.search("DOES NOT FIT: .*; no S fits", accepted("deck.toml", "--device-memory", "1M"))


def test_workspace_of_attention_by_hand():
    """cuDNN's, of rank 0's tail of 16K queries, which see all keys."""
    sizes = {"layers": 8, "ranks": 4, "groups": 1, "hidden": 256, "heads": 4, "micro_batches": 8}
    words = sizes | {"schedule": "ddp", "context": 2, "seq": "64K", "kv_heads": 2, "dtype": "bf16"}
    queries, keys, heads, kv_heads, width = 16384, 65536, 4, 2, 64
    sums = 4 * heads * queries * (width + 1) + 4 * heads * keys * width
    apart = 4 * heads * queries + 4 * kv_heads * keys * width
    (case,) = cases("deck.toml", *settings(**words), "--device-memory", "80G")
    assert case["device"]["libraries_estimate_bytes"] == (1 << 30) + 256 + sums + apart


@pytest.mark.parametrize(
    "words, said",
    [
        (settings(schedule="csv"), ["csv", "file"]),
        (["--program", *settings(schedule="ddp,fsdp", replicas=2)], ["2 cases"]),
    ],
)
def test_refusals(words, said):
    refused(minitaw("plan", "deck.toml", *words), *said)


def test_json_begins_with_who_made_it():
    deck = pathlib.Path("it's a deck.toml")
    deck.write_text(PLAIN, encoding="utf-8")
    said = json.loads(accepted(deck, "--json"))
    assert [*said][:3] == JSON_HEAD and said["schema"] > 0
    assert said["program"] + "\n" == output_of(minitaw("--version"))
    assert shlex.split(said["command"]) == [str(MINITAW), "plan", str(deck), "--json"]


def test_an_unsuited_schedule_is_in_a_note():
    """Before the table, and in the JSON."""
    words = ("deck.toml", *settings(schedule="ddp,fsdp", replicas=2))
    said = json.loads(accepted(*words, "--json"))
    note = "left out 1 combination: replicas: ddp has no replicas; use replicas = 1"
    assert said["notes"] == [note]
    assert [case["settings"]["schedule"] for case in said["cases"]] == ["fsdp"]
    assert accepted(*words).startswith(f"# {note}\n")
