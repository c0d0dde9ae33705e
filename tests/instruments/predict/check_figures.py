# SPDX-License-Identifier: BSD-3-Clause
"""Every figure of minitaw predict by hand, and its search for the best case against all cases.
Called with the program, a folder to write to, and the program that executes the verb, for
scripts/mutate."""

import itertools
import json
import pathlib
import re
import subprocess
import sys

PROGRAM, FOLDER = sys.argv[1:3]
MACHINE = (
    'nodes = 2\nranks_per_node = {}\n[device]\nmemory_rate = "1e9 GB/s"\n[device.fp32]\n'
    'peak = "2 GFLOP/s"\nproducts = "1 GFLOP/s"\n'
    '[inside]\nrate = "1 GB/s"\n[between]\nrate = "{}"\nadapters = {}\n'
)
DECK = "layers = {}\nhidden = 64\nheads = 2\nffn = 128\nvocab = 64\nseq = 16\nmicro_batches = 4\n"


def call(verb, *arguments, **changes):
    settings = [word for name, value in changes.items() for word in ("--set", f"{name}={value}")]
    done = subprocess.run(
        [PROGRAM, verb, "deck.toml", *arguments, *settings],
        capture_output=True,
        text=True,
        cwd=FOLDER,
        timeout=120,
        check=False,
    )
    assert (
        done.returncode == 0 and done.stderr == ""
    ), f"{arguments} {changes}: exit {done.returncode}, {done.stderr}"
    return done.stdout


def predict(*arguments, **changes):
    return call("predict", "--machine", "machine.toml", *arguments, **changes)


def write(layers, *machine):
    pathlib.Path(FOLDER, "deck.toml").write_text(DECK.format(layers), encoding="utf-8")
    pathlib.Path(FOLDER, "machine.toml").write_text(MACHINE.format(*machine), encoding="utf-8")


def agree(found, expected, places=1e-6):
    assert set(found) == set(expected), (found, expected)
    for name, value in expected.items():
        assert abs(found[name] - value) <= places * abs(value) + 1e-9, (name, found[name], value)


def figures():
    """Two blocks, data parallel on two nodes of a rank: rank 0 has two micro-batches of one
    sequence, rank 1 two of three. The gradients of the second block go while rank 1 computes the
    backward pass of the first; the rest waits."""
    write(2, 1, "40 MB/s", 1)
    changes = {"schedule": "ddp", "micro_batch_per_rank": "[1,3]", "recompute": "none"}
    (case,) = json.loads(predict("--json", **changes))["cases"]
    matrices, head, scores = (
        2 * 16 * 64 * (4 * 64 + 3 * 128) / 1e9,
        2 * 16 * 64 * 64 / 1e9,
        2 * 16 * 16 * 64 / 1e9,
    )
    sequence = 2 * 3 * (matrices + scores) + 3 * head
    block, embeddings = (
        4 * (2 * 64 + 64 * (4 * 64 + 3 * 128)) / 40e6,
        4 * 64 * 129 / 40e6,
    )  # a ring of two: all bytes once each way
    assert block < 3 * 2 * (matrices + scores), "the case is to hide the second block"
    step, moving = 6 * sequence + block + embeddings, 2 * block + embeddings
    flops, account = 4 * 2 * sequence * 1e9, {
        "compute": 4 * sequence / step,
        "idle": (4 * sequence - block) / 2 / step,
    }
    assert case["fits"] is None, "the machine says nothing of memory"
    agree(
        case["exposed"],
        {
            "weights": 0,
            "gradients": 1.5 * block / step,
            "activations": 0,
            "embeddings": embeddings / step,
        },
    )
    for adapter in case["adapters"]:
        agree(
            adapter,
            {
                name: moving * scale
                for name, scale in zip(
                    ("out_bytes", "in_bytes", "out_busy", "in_busy"),
                    (40e6, 40e6, 1 / step, 1 / step),
                )
            },
        )
    agree(
        {
            name: value
            for name, value in case.items()
            if name not in ("settings", "exposed", "adapters", "memory_bytes", "fits")
        },
        account
        | {
            "step_s": step,
            "tokens_per_s": 8 * 16 / step,
            "mfu": flops / step / (2 * 2e9),
            "overlap": block / (2 * moving),
            "transfer_s": (step - 2 * sequence + 2 * (matrices + scores) + moving) / 2,
        },
    )  # rank 0 is in its first one when rank 1 is not
    planned = json.loads(call("plan", "--json", ranks=2, **changes))["cases"][0]["memory_bytes"][
        "ranks"
    ]
    assert case["memory_bytes"] == max(
        rank["total"] - rank["tokens"] for rank in planned
    ), "tokens lie in host memory"
    assert len(case["adapters"]) == 2
    names, _, row = (line.lstrip("#").split() for line in predict(**changes).splitlines()[1:])
    exposed = sum(case["exposed"].values())
    agree(
        {name: float(cell) for name, cell in zip(names[6:], row[6:], strict=True)},
        {
            "step": step,
            "rate": case["tokens_per_s"],
            "rate/rank": case["tokens_per_s"] / 2,
            "MFU": 100 * case["mfu"],
            "compute": 100 * account["compute"],
            "exposed": 100 * exposed,
            "idle": 100 * account["idle"],
            "adapter": 100 * moving / step,
            "memory": 0,
        },
        6e-3,
    )
    (large,) = json.loads(predict("--json", vocab=400000, **changes))["cases"]
    memory = float(predict(vocab=400000, **changes).split()[-1])
    for limit, words, fits in (("2.2 MB", " does not fit\n", False), ("2.4 MB", "0.00\n", True)):
        assert predict("--machine-set", f"device.memory={limit}", **changes).endswith(words), (
            limit,
            case["memory_bytes"],
        )
        assert (
            json.loads(predict("--json", "--machine-set", f"device.memory={limit}", **changes))[
                "cases"
            ][0]["fits"]
            is fits
        )
    assert abs(memory - large["memory_bytes"] / 2**30) < 0.0051 < 0.1 * memory, (
        memory,
        large["memory_bytes"],
    )


def loads():
    """Node 1 gets more than it sends, over an adapter that is half as fast as the other. Without a
    network nothing is busy."""
    slow = ("--machine-set", 'exceptions=[{ranks=1, between.rate="20 MB/s"}]')
    (case,), (planned,) = (
        json.loads(text)["cases"]
        for text in (
            predict("--json", *slow, schedule="tawpipe"),
            call("plan", "--json", schedule="tawpipe", ranks=2, groups=2),
        )
    )
    for adapter, group, rate in zip(case["adapters"], planned["groups"], (40e6, 20e6), strict=True):
        out, into = group["bytes_out"], group["bytes_in"]
        agree(
            adapter,
            {
                "out_bytes": out,
                "in_bytes": into,
                "out_busy": out / rate / case["step_s"],
                "in_busy": into / rate / case["step_s"],
            },
        )
    assert (
        into > 1.1 * out
        and predict(*slow, schedule="tawpipe").split()[-2]
        == f"{100 * into / 20e6 / case['step_s']:.1f}"
    )
    slow = ("--machine-set", 'exceptions=[{ranks=0, between.rate="20 MB/s"}]')
    (case,) = json.loads(predict("--json", *slow, schedule="tawpipe"))["cases"]
    assert (
        predict(*slow, schedule="tawpipe").split()[-2]
        == f"{100 * case['adapters'][0]['out_busy']:.1f}"
    ), "the busiest is not the last"
    pathlib.Path(FOLDER, "machine.toml").write_text(
        MACHINE.partition("[between]")[0].format(2).replace("nodes = 2", "nodes = 1"),
        encoding="utf-8",
    )
    (alone,) = json.loads(predict("--json", schedule="ddp"))["cases"]
    assert [*alone["adapters"][0].values()] == [0] * 4, alone


# By sequences of a micro-batch: of larger ones there are too few for all ranks, but for pipelines,
# and for these too if they have many stages.
STAGES = ["1f1b", "zb1", "zb2"]
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
            f"tawpipe{prefetch}:rails={rails}{kept}"
            for prefetch in (":prefetch=1", "")
            for rails in (1, 2)
            for kept in KEPT
        ),
    ],
}


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
                micro_batch=size,
                micro_batches=4 // size,
                recompute="block,keep-attention,none",
            )
        )
        for case in said["cases"]:
            settings = case["settings"]
            key = (
                settings["schedule"],
                str(settings["replicas"]),
                str(settings["group_count"]),
                str(size),
                settings["recompute"],
            )
            assert key not in found, key
            found[key] = case
    return found


def best():
    """--best shows the ten fastest that fit, and counts the others; of cases that only the number
    of groups tells apart it shows one."""
    for rate, memory, reason, other in (
        ("3 MB/s", "1.6 MB", "waits", "computing"),
        ("30 kB/s", "4 MB", "adapter", "computing"),
        ("1 GB/s", "2.2 MB", "computing", "adapter"),
    ):
        write(4, 2, rate, 2)
        every = all_cases()
        fitting = {
            key: case
            for key, case in every.items()
            if case["memory_bytes"] <= 1e6 * float(memory.split()[0])
        }
        steps = sorted({(case["step_s"], key[:2], key[3:]) for key, case in fitting.items()})
        said = predict("--best", "--machine-set", f"device.memory={memory}")
        shown = re.findall(
            r"^  (\S.*)\n    (\S+) replicas=(\d) groups=(\d) micro_batch=(\d) recompute=(\S+)$",
            said,
            re.MULTILINE,
        )
        assert [f"{float(row.split()[6]):.4g}" for row, *_ in shown] == [
            f"{step:.4g}" for step, *_ in steps[:10]
        ], (said, steps[:10])
        assert all(
            [f"{float(cell):.4g}" for cell in row.split()[6:8]]
            == [f"{fitting[tuple(key)][name]:.4g}" for name in ("step_s", "tokens_per_s")]
            for row, *key in shown
        ), said
        tried, lost = re.search(r"# (\d+) tried; those not shown lose by:(.*)", said).groups()
        counts = {name: int(count) for count, name in re.findall(r" (\d+) (\w+)[^;]*;", lost)}
        assert int(tried) == len(every) == len(shown) + sum(
            map(int, re.findall(r" (\d+) ", lost))
        ) and counts["memory"] == len(every) - len(fitting), said
        assert counts[reason] and other not in counts, said


pathlib.Path(FOLDER).mkdir(parents=True, exist_ok=True)
for check in (figures, loads, best):
    check()
