# SPDX-License-Identifier: BSD-3-Clause
"""Every figure of minitaw predict by hand, and its search for the best case against all cases.
Called with the program and a folder to write to."""

import json
import pathlib
import re
import sys

import programs

PROGRAM, FOLDER = sys.argv[1:3]
MACHINE = (
    'nodes = 2\nranks_per_node = {}\n[device]\nmemory_rate = "1e9 GB/s"\n[device.fp32]\n'
    'peak = "2 GFLOP/s"\nproducts = "1 GFLOP/s"\n'
    '[inside]\nrate = "1 GB/s"\n[between]\nrate = "{}"\nadapters = {}\n'
)
DECK = "layers = {}\nhidden = 64\nheads = 2\nffn = 128\nvocab = 64\nseq = 16\nmicro_batches = 4\n"


def call(verb, *arguments, **changes):
    words = (verb, "deck.toml", *arguments, *programs.settings(**changes))
    return programs.output_of(programs.call(PROGRAM, *words, cwd=FOLDER))


def predict(*arguments, **changes):
    return call("predict", "--machine", "machine.toml", *arguments, **changes)


def write(layers, *machine):
    pathlib.Path(FOLDER, "deck.toml").write_text(DECK.format(layers), encoding="utf-8")
    pathlib.Path(FOLDER, "machine.toml").write_text(MACHINE.format(*machine), encoding="utf-8")


def agree(found, expected, places=1e-6):
    assert set(found) == set(expected), (found, expected)
    for name, value in expected.items():
        assert abs(found[name] - value) <= places * abs(value) + 1e-9, (name, found[name], value)


# The model of figures(): seconds at 1 GFLOP/s of a sequence's products, head and attention scores,
# and of a ring of two at 40 MB/s, where all bytes cross once each way.
MATRICES, HEAD, SCORES = (
    2 * 16 * products / 1e9 for products in (64 * (4 * 64 + 3 * 128), 64 * 64, 16 * 64)
)
SEQUENCE = 2 * 3 * (MATRICES + SCORES) + 3 * HEAD
BLOCK = 4 * (2 * 64 + 64 * (4 * 64 + 3 * 128)) / 40e6
EMBEDDINGS = 4 * 64 * 129 / 40e6
CHANGES = {"schedule": "ddp", "micro_batch": 3, "recompute": "none"}


def figures():
    """Two blocks, data parallel on two nodes of a rank: each has two micro-batches of three
    sequences. The gradients of the second block go during the backward pass of the first; the rest
    waits."""
    write(2, 1, "40 MB/s", 1)
    (case,) = json.loads(predict("--json", **CHANGES))["cases"]
    assert BLOCK < 3 * 2 * (MATRICES + SCORES), "the case is to hide the second block"
    step, moving = 6 * SEQUENCE + BLOCK + EMBEDDINGS, 2 * BLOCK + EMBEDDINGS
    exposed = {
        "weights": 0,
        "gradients": BLOCK / step,
        "activations": 0,
        "embeddings": EMBEDDINGS / step,
        "context": 0,
    }
    agree(case.pop("exposed"), exposed)
    assert case.pop("fits") is None, "the machine says nothing of memory"

    settings = {"ranks": 2, **CHANGES}
    (planned,) = json.loads(call("plan", "--json", **settings))["cases"]
    of_ranks = [rank["total"] - rank["tokens"] for rank in planned["memory_bytes"]["ranks"]]
    assert case.pop("memory_bytes") == max(of_ranks), "tokens lie in host memory"
    case.pop("settings")
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
    }
    agree(case, account)

    names, _, row = (line.lstrip("#").split() for line in predict(**CHANGES).splitlines()[1:])
    cells = {name: float(cell) for name, cell in zip(names[1:], row[1:], strict=True)}
    expected = {
        "step": step,
        "rate": account["tokens_per_s"],
        "rate/rank": account["tokens_per_s"] / 2,
        "MFU": 100 * account["mfu"],
        "compute": 100 * account["compute"],
        "exposed": 100 * sum(exposed.values()),
        "idle": 100 * account["idle"],
        "adapter": 100 * moving / step,
        "memory": 0,
    }
    agree(cells, expected, 6e-3)


def idle():
    """Two stages of a block each and one micro-batch: a rank idles while the other one computes."""
    write(2, 1, "40 MB/s", 1)
    (case,) = json.loads(predict("--json", schedule="1f1b", micro_batches=1, recompute="none"))[
        "cases"
    ]
    step = SEQUENCE + 2 * 4 * 16 * 64 / 40e6
    share = SEQUENCE / 2 / step
    found = {name: case[name] for name in ("step_s", "compute", "idle")}
    agree(found, {"step_s": step, "compute": share, "idle": share})


def memory():
    """Of the worst rank, in GiB; and whether it fits."""
    write(2, 1, "40 MB/s", 1)
    (large,) = json.loads(predict("--json", vocab=400000, **CHANGES))["cases"]
    printed = float(predict(vocab=400000, **CHANGES).split()[-1])
    assert abs(printed - large["memory_bytes"] / 2**30) < 0.0051 < 0.1 * printed, printed
    for limit, words, fits in (("2.2 MB", " does not fit\n", False), ("2.4 MB", "0.00\n", True)):
        option = ("--machine-set", f"device.memory={limit}")
        assert predict(*option, **CHANGES).endswith(words), limit
        (case,) = json.loads(predict("--json", *option, **CHANGES))["cases"]
        assert case["fits"] is fits, case


def bytes_between():
    """Node 1 gets more than it sends. Without a network nothing is sent or busy."""
    (case,), (planned,) = (
        json.loads(text)["cases"]
        for text in (
            predict("--json", schedule="tawpipe"),
            call("plan", "--json", schedule="tawpipe", ranks=2, groups=2),
        )
    )
    out, into = ([group[way] for group in planned["groups"]] for way in ("bytes_out", "bytes_in"))
    assert into[1] > 1.1 * out[1]
    assert case["bytes_between"] == sum(out), (case["bytes_between"], out)
    agree({"busy": case["adapter_busy"]}, {"busy": max(out + into) / 40e6 / case["step_s"]})
    pathlib.Path(FOLDER, "machine.toml").write_text(
        MACHINE.partition("[between]")[0].format(2).replace("nodes = 2", "nodes = 1"),
        encoding="utf-8",
    )
    (alone,) = json.loads(predict("--json", schedule="ddp"))["cases"]
    assert (alone["adapter_busy"], alone["bytes_between"]) == (None, 0), alone


# By sequences of a micro-batch: of larger ones there are too few for all ranks, but for pipelines,
# and for these too if they have many stages.
STAGES = ["1f1b", "zb1", "zb2"]
STAGES += [f"{name}:slices={count}" for name in ("1f1b", "zb1") for count in (4, 16)]
KEPT = (
    "",
    ":reshard=group",
    ":reshard=none",
    ":fetch=step:reshard=none",
    ":fetch=step:reduce=none:reshard=none",
    ":fetch=step:reduce=group:reshard=group",
)
FORMS = {
    4: STAGES,
    2: [*STAGES, "zbv", "1f1b:chunks=2"],
    1: [
        *STAGES,
        "zbv",
        "1f1b:chunks=2",
        "1f1b:chunks=4",
        "ddp",
        "weipipe",
        *(
            f"fsdp{levels}{prefetch}{kept}"
            for prefetch in ("", ":prefetch=2")
            for levels in ("", ":hierarchical=on")
            for kept in KEPT
            if levels or "=group" not in kept
        ),
        *(
            f"tawpipe{prefetch}:rails={rails}{shards}{kept}"
            for shards in ("", ":shards=block")
            for prefetch in (":prefetch=1", "")
            for rails in (1, 2)
            for kept in KEPT
        ),
    ],
}


def key_of(case):
    names = ("schedule", "replicas", "group_count", "context", "micro_batch", "recompute")
    return tuple(case["settings"][name] for name in names)


def all_cases():
    """{what tells a case from the others: prediction} of all that are possible; the deck's sweep
    leaves the others out."""
    found = {}
    for size, forms in FORMS.items():
        said = json.loads(
            predict(
                "--json",
                schedule=",".join(forms),
                replicas=",".join(count for count in "124" if int(count) * size <= 4),
                groups="2,4",
                context="1,2" if size == 1 else "1",
                micro_batch=size,
                micro_batches=4 // size,
                recompute="block,keep-attention,none",
            )
        )
        for case in said["cases"]:
            key = key_of(case)
            assert key not in found, key
            found[key] = case
    return found


def best():
    """--best shows the ten fastest that fit, and counts the others; of cases that only the number
    of groups tells apart it shows one."""
    for rate, memory, reason in (
        ("3 MB/s", "1.6 MB", "are slower"),
        ("30 kB/s", "4 MB", "cannot be faster"),
        ("1 GB/s", "2.2 MB", "cannot be faster"),
    ):
        write(4, 2, rate, 2)
        every = all_cases()
        fitting = {
            key: case
            for key, case in every.items()
            if case["memory_bytes"] <= 1e6 * float(memory.split()[0])
        }
        steps = sorted({(case["step_s"], key[:2], key[3:]) for key, case in fitting.items()})
        words = ("--best", "--machine-set", f"device.memory={memory}")
        said = json.loads(predict(*words, "--json", schedule="ddp"))
        assert [case["step_s"] for case in said["cases"]] == [step for step, *_ in steps[:10]], (
            said,
            steps[:10],
        )
        for case in said["cases"]:
            same = fitting[key_of(case)]
            assert all(case[name] == same[name] for name in ("step_s", "tokens_per_s")), case
        (note,) = said["notes"]
        tried, *counts = re.findall(r"(\d+) ([a-z ]+)", note)
        assert tried == (str(len(every)), "tried"), note
        lost = {why: int(count) for count, why in counts}
        assert len(every) == len(said["cases"]) + sum(lost.values()), note
        assert lost["do not fit"] == len(every) - len(fitting) and lost[reason], note
        assert f"# {note}" in predict(*words, schedule="ddp")


pathlib.Path(FOLDER).mkdir(parents=True, exist_ok=True)
for check in (figures, idle, memory, bytes_between, best):
    check()
