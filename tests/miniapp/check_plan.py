# SPDX-License-Identifier: BSD-3-Clause
"""Every figure of minitaw plan, reckoned again from the text of the program, by hand, or from its
JSON. Called with the program and a folder to write to."""

import collections
import json
import pathlib
import re
import shlex
import sys

from programs import JSON_HEAD, MEMORY_KINDS, call, output_of, refused, run_checks, settings

PROGRAM, FOLDER = sys.argv[1:]
DECK = pathlib.Path(FOLDER) / "deck.toml"


def accepted(*arguments):
    return output_of(call(PROGRAM, "plan", *arguments, cwd=FOLDER))


def cases(*arguments):
    return json.loads(accepted(*arguments, "--json"))["cases"]


# Six ranks in groups of three sizes, reckoned again from the text of the program: T = 16 tokens, H
# = 32 and d = 8 in bf16.
FFN = 80
ODD = (
    'groups = "1+2+3"\nlayers = 9\nhidden = 32\nheads = 4\nkv_heads = 2\nvocab = 50\nseq = 16\n'
    "micro_batches = 12\n"
    f'ffn = {FFN}\ndtype = "bf16"\n'
)
NODE = [0, 1, 1, 2, 2, 2]
# Blocks of each shard.
BLOCKS = {"fsdp": [1] * 9} | dict.fromkeys(("tawpipe", "weipipe", "zb1"), [2, 1, 2, 1, 2, 1])
KINDS = {
    "W": "weights",
    "G": "gradients",
    "A": "activations",
    "D": "activations",
    "E": "embeddings",
}
VISITS = ("F", "BW", "B", "W")


def padded(elements, parts=1):
    """In equal parts, each a multiple of 64 elements."""
    return parts * 64 * -(-elements // (64 * parts))


def elements(blocks):
    return blocks * (32 * 64 + 32 * 32 + 2 * 64 + 3 * 32 * FFN)  # the 32 numbers of a gain take 64


class Account:
    """What the actions of a program send and compute."""

    def __init__(self, program, blocks):
        self.program, self.ranks = program, program.split("\nrank ")[1:]
        self.blocks = blocks
        self.actions = [[line.split() for line in rank.splitlines()[1:]] for rank in self.ranks]
        self.rings = {
            words[1]: list(map(int, words[2:]))
            for words in map(str.split, program.splitlines())
            if words[0] == "communicator"
        }
        self.inside, self.between, self.out, self.into = (collections.Counter() for _ in range(4))
        for rank, lines in enumerate(self.actions):
            for _, _, action, *operands in lines:
                self.count(rank, action, operands)

    def number(self, name):
        """Of the head of the program."""
        return int(self.program.split(name)[1].split()[0]) if name in self.program else 1

    def embeddings(self):
        return padded(101 * 32 + 32, self.number("embeddings_parts"))

    def count(self, rank, action, operands):
        """A message at its send, a collective at its root or first member: a chain from or to the
        root, or a ring in six slices."""
        peer = next((int(word[1:]) for word in operands if re.fullmatch(r"r\d", word)), rank)
        if action == "send":
            self.move([(rank, peer)], operands)
        if action not in ("broadcast", "reduce", "all_gather", "reduce_scatter"):
            return
        ring, chain = self.rings[next(word[1:] for word in operands if word[0] == "@")], action in (
            "broadcast",
            "reduce",
        )
        if rank != (peer if chain else ring[0]):
            return
        ring = ring[ring.index(rank) :] + ring[: ring.index(rank)]
        links = [*zip(ring, ring[1:] + ring[:1])][: -1 if chain else None]
        self.move(
            [link[::-1] for link in links] if action == "reduce" else links,
            operands,
            1 if chain else 5 / 6,
        )

    def move(self, links, operands, share=1):
        what, slot = operands[0], next(
            word for word in operands[1:] if re.fullmatch(r"[htwgcxef]\d", word)
        )
        moved = (
            16 * 32
            if what[0] in "AD"
            else (
                self.embeddings()
                if what[0] == "E"
                else padded(elements(self.blocks[int(what[1])]), self.number("shard_parts"))
            )
        )
        size = round(share * moved) * (4 if slot[0] in "tf" else 2)
        for a, b in links:
            (self.inside if NODE[a] == NODE[b] else self.between)[KINDS[what[0]]] += size
            self.out[NODE[a]] += size * (NODE[a] != NODE[b])
            self.into[NODE[b]] += size * (NODE[a] != NODE[b])


def check_account():
    for schedule, blocks in BLOCKS.items():
        account = Account(accepted("odd.toml", *settings(schedule=schedule), "--program"), blocks)
        (case,) = cases("odd.toml", *settings(schedule=schedule), "--device-memory", "8G")
        for name, sums in (("inside", account.inside), ("between", account.between)):
            assert case["bytes_per_step"][name] == {kind: sums[kind] for kind in KINDS.values()} | {
                "context": 0,
                "total": sum(sums.values()),
            }, (schedule, name, sums)
        assert case["groups"] == [
            {
                "group": g,
                "ranks": NODE.count(g),
                "bytes_out": account.out[g],
                "bytes_in": account.into[g],
            }
            for g in range(3)
        ]
        for name, sums in (("busiest_out", account.out), ("busiest_in", account.into)):
            assert case[name]["bytes"] == sums[case[name]["group"]] == max(sums.values()), (
                schedule,
                name,
                sums,
            )
        assert (
            schedule != "weipipe" or case["busiest_out"]["group"] != case["busiest_in"]["group"]
        ), "the case is to tell them apart"
        check_ticks(case, account)
        check_memory(case, account)


def check_ticks(case, account):
    computing = [
        {tick for tick, _, action, *_ in lines if action in VISITS} for lines in account.actions
    ]
    used = [
        int(tick)
        for lines in account.actions
        for tick, lane, action, *_ in lines
        if lane != "compute" and action not in ("load", "add") or action in VISITS
    ]
    assert case["ticks"] == {
        "total": max(used) - min(used) + 1,
        "computing_per_rank": list(map(len, computing)),
    }, case["ticks"]


def check_memory(case, account):
    """The worst rank and its slots, and, of a pipeline, in which each rank has one shard and both
    ends a slice, what all of them keep."""
    memory, settings, device = case["memory_bytes"], case["settings"], case["device"]
    worst = max(memory["ranks"], key=lambda rank: rank["total"])
    slots = dict(re.findall(r" ([a-z])(\d+)", account.ranks[worst["rank"]].splitlines()[0]))
    assert memory["worst"] == worst
    assert case["slots"] == dict.fromkeys("htwkgcpabxvdyzefn", 0) | {
        kind: int(count) for kind, count in slots.items()
    } | {"rank": worst["rank"]}
    for number, rank in enumerate(memory["ranks"]):
        assert rank["rank"] == number
        assert rank["total"] == sum(rank[kind] for kind in MEMORY_KINDS)
        if settings["schedule"] == "zb1":
            ends = account.embeddings() // 2 if number in (0, 5) else 0
            parts = elements(account.blocks[number]), ends
            kept = [sum(256 * -(-size * part // 256) for part in parts) for size in (2, 4, 12)]
            assert [rank["weights"], rank["gradients"], rank["optimiser"]] == kept, (
                number,
                rank,
                kept,
            )
    # driver, and the workspace of cuBLASLt, with room for that of so small an attention
    assert device["libraries_estimate_bytes"] == (1 << 30) + (32 << 20)
    arena = max(rank["total"] - rank["tokens"] for rank in memory["ranks"])
    assert (device["arena_bytes"], device["available_bytes"], device["fits"], case["shards"]) == (
        arena,
        8 << 30,
        True,
        len(account.blocks),
    )
    check_host(case, account)


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
        assert rank["tokens"] == len(batches) * 4 * (3 * 16 + 17 + 1), (rank, batches)
        process = (40 << 20) + 92 * actions + 24 * len(lines) * case["settings"]["steps"]
        assert host == {
            "step": rank["total"],
            "process_estimate": process,
            "total": rank["total"] + process,
        }, host


def check_idle():
    """One micro-batch in two stages, of which the second has the head and one block: each idles
    while the other computes. The step is the model's FLOPs, as memory is fast."""
    changes = settings(schedule="1f1b", ranks=2, groups=1, micro_batches=1, recompute="none")
    said = json.loads(accepted("deck.toml", *changes, "--json", "--flops", "1e6"))
    (case,) = said["cases"]
    block = 32 * (4 * 32 + 3 * case["settings"]["ffn"]) + 64 * 32
    head = 32 * case["settings"]["vocab"]
    step = case["idle"]["step_s"]
    assert abs(step * 1e6 / (6 * 64 * (5 * block + head)) - 1) < 1e-6, case["idle"]
    first, second = case["idle"]["share_per_rank"]
    assert abs(first - (block + head) / (5 * block + head)) < 1e-6, case["idle"]
    assert abs(second - 4 * block / (5 * block + head)) < 1e-6, case["idle"]
    assert abs(case["idle"]["share"] - 1 / 2) < 1e-6, case["idle"]
    assert said["assumed_per_rank"] == {"flops": 1e6, "memory_bytes_per_s": 3.35e12}


# Table and text have the figures of the JSON.
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def near(text, value, least=0):
    """A rounded number; `least`: half of its last decimal."""
    return abs(float(text) - value) <= 6e-4 * abs(value) + least


def check_table():
    """One aligned row a case, with the figures of the JSON."""
    arguments = (
        "odd.toml",
        *settings(schedule="tawpipe:reduce=group,weipipe,fsdp,zb1", seq="64,128"),
    )
    lines, found = accepted(*arguments).split("\n\n")[0].splitlines(), cases(*arguments)
    assert (
        found[2] == cases("odd.toml", *settings(schedule="weipipe", seq=64))[0]
    ), "the others do not matter"
    assert (
        cases("odd.toml", *settings(schedule="tawpipe"), "--adapters", "2")[0]["settings"][
            "schedule"
        ]
        == "tawpipe:rails=2"
    )
    assert len(found) == 8 and len(lines) == 10 and len({len(line) for line in lines}) == 1, lines
    names = lines[0].lstrip("#").split()
    ends = {name: re.search(rf"[ #]{re.escape(name)}(?= |$)", lines[0]).end() for name in names}
    units = {name: lines[1][:end].split(" ")[-1].partition("/")[0] for name, end in ends.items()}
    for number, (line, case) in enumerate(zip(lines[2:], found)):
        figures, worst = dict(zip(names, line.split(), strict=True)), case["memory_bytes"]["worst"]
        assert figures["case"] == str(number)
        assert figures["schedule"] == case["settings"]["schedule"]
        assert figures["seq"] == str(case["settings"]["seq"])
        assert figures["ticks"] == str(case["ticks"]["total"])
        assert figures["idle"] == f"{100 * case['idle']['share']:.1f}"
        assert figures["ranks"] == "6"
        assert figures["groups"] == "1+2+3"
        sizes = {name: case["bytes_per_step"][name]["total"] / 6 for name in ("inside", "between")}
        sizes |= {f"NIC-{way}": case[f"busiest_{way}"]["bytes"] for way in ("in", "out")} | {
            "memory": worst["total"]
        }
        sizes |= {
            kind: worst[kind]
            for kind in ("weights", "gradients", "optimiser", "activations", "buffers", "tokens")
        }
        for name, size in sizes.items():
            assert near(figures[name], size / UNITS[units[name]], 5.1e-4), (
                line,
                name,
                size,
                units[name],
            )
    assert "micro_batches" not in names and "seq" not in accepted("deck.toml").splitlines()[0]
    names = (
        accepted("deck.toml", *settings(hidden="32,64", dtype="fp32,bf16")).splitlines()[0].split()
    )
    assert "hidden" in names, names
    assert "dtype" in names, names
    assert "ffn" not in names, names
    assert "parameters" not in names, names


class Text:
    """The text of a case of `plan`."""

    def __init__(self, text):
        self.lines = text.splitlines()

    def line(self, name):
        """After the name that it begins with."""
        return next(line.split(name, 1)[1] for line in self.lines if line.startswith(f"  {name}"))

    def numbers(self, name):
        return [float(number) for number in re.findall(r"\d[\d.e+-]*", self.line(name))]

    def has_sizes(self, name, sizes):
        """Fails unless its sizes are these; they have two decimals."""
        found = re.findall(r"([\d.]+) (B|[KMG]iB)\b", self.line(name))
        assert len(found) == len(sizes), (self.line(name), sizes)
        for (number, unit), size in zip(found, sizes):
            assert abs(float(number) - size / UNITS[unit]) <= 0.0051, (self.line(name), sizes)


TRACED = ("odd.toml", *settings(schedule="tawpipe"), "--device-memory", "8G")


def check_text_of_sizes():
    text = Text(accepted(*TRACED).split("\n\n")[1])
    (case,) = cases(*TRACED)
    memory, device = case["memory_bytes"], case["device"]
    for reach in ("inside", "between"):
        text.has_sizes(f"{reach} groups", [*case["bytes_per_step"][reach].values()])
    worst = memory["worst"]["rank"]
    for number, rank in enumerate(memory["ranks"]):
        text.has_sizes(f"rank {number} ", [*rank.values()][1:])
    host = case["host_bytes"][worst]
    text.has_sizes("on a host", [host["step"], host["process_estimate"], host["total"]])
    names = ("arena_bytes", "libraries_estimate_bytes", "available_bytes")
    text.has_sizes("device", [device[name] for name in names])
    assert f"largest S that fits is {device['largest_seq']}" in text.line("device")
    assert text.line("device").split(":")[0].strip() == "fits"
    assert f"rank {worst} needs" in text.line("on a host") and worst not in (0, 5)


def check_text_of_counts():
    text = Text(accepted(*TRACED).split("\n\n")[1])
    assert text.lines[0] == (
        "case 0: tawpipe, 6 ranks in groups 1+2+3, L = 9, H = 32, S = 16, B = 1, M = 12"
    )
    matrices, attention = elements(9) - 9 * 128 + 50 * 32, 9 * 16 * 32
    parameters, shards = text.numbers("model")[:2]
    assert near(parameters, matrices + 51 * 32 + 9 * 64), "embedding and gains besides"
    assert shards == 6
    tokens, causal = text.numbers("step")
    assert tokens == 12 * 16
    assert near(causal, 192e-12 * 6 * (matrices + attention)), causal


def check_fit():
    """The largest S that is said to fit does, and the next one does not."""

    def device(*arguments):
        return cases("deck.toml", "--device-memory", "3G", *arguments)[0]["device"]

    plain = device()
    largest = plain["largest_seq"]
    assert plain["fits"], plain
    assert plain["available_bytes"] == 3 << 30, plain
    assert largest >= 128, plain
    assert largest % 128 == 0, plain
    assert device(*settings(seq=largest))["fits"]
    beyond = device("--set", f"seq={largest + 128}")
    assert not beyond["fits"] and beyond["largest_seq"] == largest
    assert re.search("DOES NOT FIT: .*; no S fits", accepted("deck.toml", "--device-memory", "1M"))
    assert f"largest S that fits is {largest}" in accepted("deck.toml", "--device-memory", "3GiB")


def check_workspace():
    """cuDNN's, of rank 0's tail of 16K queries, which see all keys."""
    sizes = {"layers": 8, "ranks": 4, "groups": 1, "hidden": 256, "heads": 4, "micro_batches": 8}
    words = sizes | {"schedule": "ddp", "context": 2, "seq": "64K", "kv_heads": 2, "dtype": "bf16"}
    queries, keys, heads, kv_heads, width = 16384, 65536, 4, 2, 64
    sums = 4 * heads * queries * (width + 1) + 4 * heads * keys * width
    apart = 4 * heads * queries + 4 * kv_heads * keys * width
    (case,) = cases("deck.toml", *settings(**words), "--device-memory", "80G")
    libraries = case["device"]["libraries_estimate_bytes"]
    assert libraries == (1 << 30) + 256 + sums + apart, libraries


def check_refusals():
    """A program is that of one case, and a file must be named."""
    for words, says in (
        (settings(schedule="csv"), ["csv", "file"]),
        (["--program", *settings(schedule="ddp,fsdp", replicas=2)], ["2 cases"]),
    ):
        refused(call(PROGRAM, "plan", "deck.toml", *words, cwd=FOLDER), *says)


def check_head():
    """The output of every verb for programs begins with who made it, and by which command."""
    deck = "it's a deck.toml"
    (DECK.parent / deck).write_bytes(DECK.read_bytes())
    said = json.loads(accepted(deck, "--json"))
    assert list(said)[:3] == JSON_HEAD and said["schema"] > 0, said
    assert said["program"] + "\n" == output_of(call(PROGRAM, "--version")), said["program"]
    assert shlex.split(said["command"]) == [PROGRAM, "plan", deck, "--json"], said["command"]


def check_unsuited():
    """A schedule that the other keys do not suit is in a note, before the table and in the JSON."""
    words = ("deck.toml", *settings(schedule="ddp,fsdp", replicas=2))
    said = json.loads(accepted(*words, "--json"))
    note = "left out 1 combination: replicas: ddp has no replicas; use replicas = 1"
    schedules = [case["settings"]["schedule"] for case in said["cases"]]
    assert said["notes"] == [note] and schedules == ["fsdp"], said["notes"]
    assert accepted(*words).startswith(f"# {note}\n")


def check_units():
    """Blocks of each unit of fsdp:unit=3, where visits have segments."""
    words = settings(schedule="fsdp:unit=3", layers=16, context=2)
    program = accepted("deck.toml", *words, "--program")
    assert sorted(re.search(r"\nblocks (.*)\n", program)[1].split()) == list("223333"), program


# The shards that leave a group of 24 ranks in 3, with 2 micro-batches each: rows of
# docs/schedules.md that say so, and the schedules of each formula there; {}: with the options of
# the row.
FORMULAS = {
    "none of them": ["fsdp:hierarchical=on", "tawpipe"],
    "`reshard=group`": ["fsdp:hierarchical=on{}", "tawpipe{}"],
    "`reshard=group:fetch=step`": ["fsdp:hierarchical=on{} tawpipe{}"],
    "`reshard=group:fetch=step:reduce=group`": ["fsdp:hierarchical=on{} tawpipe{}"],
    "`reshard=none:fetch=step:reduce=none`": ["fsdp:hierarchical=on{} tawpipe{}", "fsdp{}"],
    "`weipipe`": ["weipipe"],
    "`fsdp`": ["fsdp"],
    "`fsdp:hierarchical=on`": ["fsdp:hierarchical=on"],
    "`tawpipe`, on average": ["tawpipe"],
}


def check_formulas():
    """Of equal blocks, weights and gradients in bf16. What weipipe's last hop takes across is not
    in its formula."""
    text = (
        ODD.replace("1+2+3", "8+8+8").replace("layers = 9", "layers = 24").replace("= 12", "= 48")
    )
    (DECK.parent / "even.toml").write_text(text, encoding="utf-8")
    page = (pathlib.Path(__file__).parents[2] / "docs/schedules.md").read_text(encoding="utf-8")
    tables = [table.partition("\n\n")[0] for table in page.split("| P = 24, D = 3, N = 2 |\n")[1:]]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for table in tables
        for line in table.splitlines()[1:]
    ]
    rows = {
        form: (formulas.split("; "), numbers.split("; "))
        for form, *_, formulas, numbers in rows
        if numbers
    }
    assert list(rows) == list(FORMULAS), list(rows)
    for form, whose in FORMULAS.items():
        for names, formula, number in zip(whose, *rows[form], strict=True):
            product = re.sub(
                r"(?<=[0-9A-Z)])\s*(?=[A-Z(])", "*", re.sub(r"(flat )?`\w+` |,.*", "", formula)
            )
            expected = eval(product, {"N": 2, "P": 24, "D": 3})
            assert abs(expected - float(number.partition(",")[0])) < 0.05, (form, formula, number)
            for schedule in names.replace("{}", ":" + form.strip("`")).split():
                (case,) = cases("even.toml", *settings(schedule=schedule))
                parts = re.search(
                    r"\nshard_parts (\d+)",
                    accepted("even.toml", *settings(schedule=schedule), "--program"),
                )
                shard = 2 * padded(elements(1), int(parts[1]) if parts else 1)
                shards = (
                    sum(
                        case["bytes_per_step"]["between"][kind] for kind in ("weights", "gradients")
                    )
                    / 3
                    / shard
                )
                assert (
                    expected * 0.999 < shards < expected * 1.001 + 16 * (schedule == "weipipe")
                ), (schedule, formula, shards)


DECK.parent.mkdir(parents=True, exist_ok=True)
DECK.write_text(
    "ranks = 4\ngroups = 2\nlayers = 5\nhidden = 32\nheads = 4\nseq = 64\n", encoding="utf-8"
)
pathlib.Path(FOLDER, "odd.toml").write_text(ODD, encoding="utf-8")
run_checks(globals())
