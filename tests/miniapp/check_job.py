# SPDX-License-Identifier: BSD-3-Clause
"""The program under mpiexec: a deck runs once, bad input ends on every rank with exit 2, limits
and repetitions hold, topo tells places. Called as job.py says, and with the program with the
devices of fake_host.cpp.
"""

import datetime
import json
import os
import pathlib
import re
import time

import h5py
import programs
from job import DECK, FOLDER, MORE, MPIEXEC, NUMBER, PROGRAM, call, rows
from programs import output_of, refused, run_checks, settings

FILE = FOLDER / "job.h5"
(NO_DEVICE,) = MORE


def table_of(text):
    """The rows of a printed table, by the titles of its columns."""
    titles = next(line for line in text.splitlines() if line.startswith("# ") and " rate " in line)
    return [
        dict(zip(titles[1:].split(), line.split("  [")[0].split()))
        for line in text.splitlines()
        if line.startswith("  ")
    ]


def check_whole_deck():
    """Cases on all ranks and on some; a second run has nothing to do. check_survival.py strikes
    such runs."""
    done = call(3, "run", DECK, "-o", FILE)
    output_of(done)
    assert done.stdout.rstrip().splitlines()[-2].startswith("RESULT: VALID"), done.stdout
    cases = rows(FILE)
    assert len(cases) == 16 and all(row["status"] == "ok" for row in cases), len(cases)
    shown = programs.call(PROGRAM, "show", FILE)
    assert shown.returncode == 0, shown.stdout
    assert shown.stdout.splitlines()[-2:] == done.stdout.rstrip().splitlines()[-3:-1], shown.stdout
    said, whole = map(table_of, (done.stdout, shown.stdout))
    assert len(said) == len(whole) == 16, done.stdout
    for few, all_of in zip(said, whole):
        assert {"schedule", "seq", "step", "rate", "idle", "status"} < few.keys(), few
        assert few.items() < all_of.items(), (few, all_of)
    again = call(3, "run", DECK, "-o", FILE)
    assert again.returncode == 0 and "16 of 16 cases" in again.stdout, again.stdout
    assert not list(FOLDER.glob("job.h5?*")), "temporary files are left behind"


def check_refusals():
    for arguments, word in [
        (["run", DECK, *settings(heads=3)], "heads"),
        (
            ["run", DECK, *settings(dtype="bf16", attention="host"), "-o", FOLDER / "no.h5"],
            "attention = host",
        ),
        (["run", DECK, "-o", FOLDER / "no/such/folder.h5"], "folder"),
    ]:
        done = call(3, *arguments)
        refused(done, word)


def check_results():
    """Both precisions in one sweep; the kernel that ran is named, the account adds up, and
    --timeline keeps every action of every rank."""
    file, begin = FOLDER / "results.h5", datetime.datetime.now(datetime.UTC)
    sweep = settings(dtype="fp32,bf16", seq=9, ranks=3, groups="1+2", replicas="1,3")
    options = ("--timeline", "--peak", "2e9", "-o", file)
    output_of(call(3, "run", DECK, *sweep, *options, variables=["TZ=UTC-9"]))
    cases = rows(file)
    found = {(row["dtype"], row["schedule"], row["replicas"]) for row in cases}
    kinds = (("tawpipe", 1), ("tawpipe", 3), ("ddp", 1))
    assert found == {(dtype, *kind) for dtype in ("fp32", "bf16") for kind in kinds}, cases
    for row in cases:
        started = datetime.datetime.fromisoformat(row["started"])
        assert begin.replace(microsecond=0) <= started <= datetime.datetime.now(datetime.UTC), row
        assert row["peak"] == 2e-3 and abs(row["mfu"] * 2e-3 / row["tflops_rank"] - 1) < 1e-9, row
        source = "counted" if row["transport_used"].startswith("mpi") else "by formula"
        assert row["bytes_source"] == source, row
        assert row["attention"] == "auto" and row["attention_used"] not in ("", "auto"), row
        assert row["transport_used"].split()[0] in ("mpi", "nccl"), row
        least = 1e-5 if row["dtype"] == "fp32" else 1e-2
        assert 0 <= row["gradient_error"] < least, f"a case that fits is checked: {row}"
        check_parts(row)
    with h5py.File(file) as record:
        columns = ("ticks", "accounted_step", "accounted_s")
        for number, figures in enumerate(zip(*(record[f"runs/{name}"][:] for name in columns))):
            case = record[f"runs/{number:04}"]
            columns = [column[:] for column in case["timeline"].values()]
            assert len({len(column) for column in columns}) == 1
            assert set(case["timeline/rank"][:]) == {0, 1, 2}
            assert (case["timeline/begin"][:] <= case["timeline/end"][:]).all()
            check_account(case, *figures)


def check_parts(row):
    """Computing, exposed and idle seconds of a step agree with their shares of it."""
    exposed, idle = row["exposed_share"], row["idle_share"]
    step = row["compute_s"] / (1 - exposed - idle)
    kinds = ("weights", "gradients", "activations", "embeddings")
    waited = sum(row[f"exposed_{kind}_s"] for kind in kinds)
    assert abs(waited - step * exposed) < 1e-6 * step, row
    assert abs(row["idle_s"] - step * idle) < 1e-6 * step, row
    assert row["compute_s"] > 0, row
    assert row["q1_s"] < 1.01 * step, f"the slowest rank takes no longer than all: {row}"
    assert 0 <= idle <= 1 and 0 <= row["overlap"] <= 1, row


def check_account(case, ticks_of_program, step, length):
    """Its times and ticks against the timeline, action by action."""
    events = {name: column[:] for name, column in case["timeline"].items()}
    kinds = [case["timeline/kind"].attrs["codes"][kind] for kind in events["kind"]]
    lanes = [case["timeline/lane"].attrs["codes"][lane] for lane in events["lane"]]
    actions = list(
        zip(events["rank"], lanes, kinds, events["tick"], events["end"] - events["begin"])
    )
    assert (
        abs(length - events["end"].max()) < 1e-12 and length > case["seconds"][step].max() - 1e-9
    ), "ranks of a node share a clock"
    visits, moved = ("F", "BW", "B", "W"), (
        "send",
        "recv",
        "broadcast",
        "reduce",
        "all_gather",
        "reduce_scatter",
        "all_reduce",
    )
    ticks = [tick for _, _, kind, tick, _ in actions if kind in (*visits, *moved)]
    assert ticks_of_program == max(ticks) - min(ticks) + 1
    for rank in range(3):
        computing = sum(
            seconds
            for owner, lane, kind, _, seconds in actions
            if (owner, lane) == (rank, "compute") and kind != "join"
        )
        assert abs(computing - case["time/compute"][rank]) < 1e-9, (
            rank,
            computing,
            case["time/compute"][:],
        )
        busy = {tick for owner, _, kind, tick, _ in actions if owner == rank and kind in visits}
        assert case["idle_ticks"][rank] == ticks_of_program - len(busy), (rank, busy)


def check_statuses():
    """What cannot run is recorded and does not stop the sweep; what failed stays until it is
    retried."""
    file = FOLDER / "statuses.h5"
    one = (*settings(seq="9,200", ranks=2, groups=1, schedule="ddp", repeats=2), "-o", file)
    small = call(2, "run", DECK, *one, "--memory", "41910K")
    assert small.returncode == 1 and "skipped: needs" in small.stdout and small.stderr == "", (
        small.stdout + small.stderr
    )
    assert [row["status"] for row in rows(file)] == ["ok", "ok", "skipped"], small.stdout
    assert small.stdout.count("\n# needs ") == 1, small.stdout
    assert rows(file)[0]["gradient_error"] is None, "the case fits, its reference does not"
    whole = call(2, "run", DECK, *one)
    assert whole.returncode == 0, whole.stdout
    assert "has 1 of 2 cases already" in whole.stdout, whole.stdout
    # Too large for any machine: malloc says so. It is not repeated.
    giant = (
        *settings(schedule="ddp", ranks=2, groups=1, seq=9, hidden="1M", ffn="4M", repeats=2),
        "-o",
        FOLDER / "oom.h5",
    )
    done = call(2, "run", DECK, *giant, "--memory", "900000T")
    output_of(done, code=1)
    assert [row["status"] for row in rows(FOLDER / "oom.h5")] == ["oom"], done.stdout
    assert done.stdout.count("repetition ") == 1, done.stdout
    again = call(2, "run", DECK, *giant, "--memory", "900000T")
    assert again.returncode == 1, again.stdout
    assert "--retry runs it again" in again.stdout, again.stdout
    assert "[1/1" not in again.stdout, again.stdout
    retried = call(2, "run", DECK, *giant, "--memory", "900000T", "--retry")
    assert retried.returncode == 1, retried.stdout
    assert "[1/2" in retried.stdout, retried.stdout
    assert "--retry" not in retried.stdout, retried.stdout
    other = call(2, "run", DECK, *one[:-1], FOLDER / "oom.h5")
    assert other.returncode == 0, other.stdout
    assert "RESULT: VALID" in other.stdout, other.stdout
    statuses = [row["status"] for row in rows(FOLDER / "oom.h5")]
    assert statuses == ["oom", "oom", *["ok"] * 4], other.stdout

    # What ran when a job died comes last.
    (FOLDER / "died.h5.running").write_text(rows(file)[0]["identity"] + "\n", encoding="utf-8")
    died = call(2, "run", DECK, *one[:-1], FOLDER / "died.h5")
    assert [row["seq"] for row in rows(FOLDER / "died.h5")] == [200, 200, 9, 9], died.stdout
    assert "a job died while a case was running" in died.stdout, died.stdout


def check_time_limit():
    """A case that does not end within the limit is a timeout; after a finished one, or late in a
    Slurm job, it is left for the next run."""
    now = int(time.time())
    for seq, steps, options, variables, said, statuses in (
        (
            9,
            1000000,
            ["--time-limit", "4"],
            [],
            "it does not end within the time limit of 4 s",
            ["timeout"],
        ),
        (
            "9,2000",
            1000,
            ["--time-limit", "20"],
            [],
            "stopped before the time limit of 20 s",
            ["ok"],
        ),
        (
            9,
            1000000,
            [],
            [f"SLURM_JOB_START_TIME={now - 1000}", f"SLURM_JOB_END_TIME={now + 11}"],
            "stopped before the Slurm job's time limit",
            [],
        ),
    ):
        file = FOLDER / f"limit_{seq}{''.join(statuses)}.h5"
        done = call(
            2,
            "run",
            DECK,
            *settings(schedule="ddp", seq=seq, ranks=2, groups=1, steps=steps),
            *options,
            "-o",
            file,
            variables=variables,
        )
        assert done.returncode == 1 and said in done.stdout, done.stdout + done.stderr
        assert [row["status"] for row in rows(file)] == statuses, done.stdout


def check_memory():
    """The largest resident set of a process, as the kernel gives it, is what `plan` says, within 5
    %. Rank 0 also holds references and the file. In other environments than ours, processes begin
    with another size."""
    file = FOLDER / "memory.h5"
    deck = pathlib.Path(__file__).resolve().parents[2] / "inputs/quickstart.toml"
    keys = settings(seq="128,512", steps=1, warmup=0, schedule="tawpipe,weipipe,zb2,ddp")
    call(4, "run", deck, *keys, "-o", file)
    done = programs.call(PROGRAM, "plan", deck, *keys, "--json")
    ours = pathlib.Path("/etc/minitaw-root").exists()
    with h5py.File(file) as record:
        for number, planned in enumerate(json.loads(done.stdout)["cases"]):
            memory = record[f"runs/{number:04}/memory"]
            for rank in (1, 2, 3):
                peak, begin = (int(memory[f"process_{name}"][rank]) for name in ("peak", "begin"))
                if begin == 0:
                    return  # this kernel lets no process start a new peak
                expected = planned["host_bytes"][rank]
                assert abs(peak - begin - expected["step"]) < 0.05 * peak + (4 << 20), (
                    number,
                    rank,
                    peak,
                    begin,
                    expected,
                )
                assert not ours or abs(peak - expected["total"]) < 0.05 * peak, (
                    number,
                    rank,
                    peak,
                    expected,
                )


def check_repeats():
    """Repetitions in random order: a row for each, in the order in which they ran."""
    file = FOLDER / "repeats.h5"
    seconds = -time.monotonic()
    done = call(
        3,
        "run",
        DECK,
        *settings(seq=9, ranks=3, groups="1,1+2", repeats=4),
        "--interleave",
        "-o",
        file,
    )
    output_of(done)
    seconds += time.monotonic()
    runs = rows(file)
    order = [(row["case"], row["repetition"]) for row in runs]
    assert sorted(order) == [(case, repetition) for case in range(4) for repetition in range(4)]
    assert order != sorted(order), "repetitions of all cases in random order"
    for case in range(4):
        assert [repetition for number, repetition in order if number == case] == [0, 1, 2, 3]
    with h5py.File(file) as record:
        samples = [record[f"runs/{number:04}/seconds"][:] for number in range(16)]
    assert all(some.shape == (3, 3) for some in samples)
    recorded = sum(some.max(axis=1).sum() for some in samples)
    assert 0 < recorded < seconds, f"{recorded} s of steps in a run of {seconds} s"


def check_slowest_rank():
    """None is named where threads outnumber the cores, since their times do not tell it."""
    file, threads = FOLDER / "slowest.h5", os.cpu_count() + 1
    keys = settings(schedule="ddp", seq=9, ranks=2, groups=1)
    done = call(2, "run", DECK, *keys, "-o", file, variables=[f"OMP_NUM_THREADS={threads}"])
    output_of(done)
    (row,) = rows(file)
    assert (row["slowest_rank"], row["slowest_ratio"]) == (-1, None), row
    assert "computes slowest" not in done.stdout, done.stdout


def check_rank_that_cannot_start():
    """Without its device, or without Kokkos: the job ends at once, and says which rank on which
    node, and why."""
    for ranks, without in (2, 0), (2, 1), (3, 1):
        begin = time.monotonic()
        done = call(
            ranks, "run", DECK, variables=[f"RANK_WITHOUT_DEVICE={without}"], program=NO_DEVICE
        )
        refused(done, f"rank {without}", "node 0", "devices")
        assert time.monotonic() - begin < 25, "it ends before the 30 s alarm of a job that waits"
    run = [PROGRAM, "run", str(DECK)]
    command = [MPIEXEC, NUMBER, "1", *run, ":", NUMBER, "1", "env", "KOKKOS_NUM_THREADS=x", *run]
    done = programs.call(*command, cwd=FOLDER, timeout=25)
    assert (
        "KOKKOS_NUM_THREADS" in done.stderr
    ), done  # MPICH's mpiexec passes on the code of the rank that it waits for last


def check_topo():
    """Places and groups, as a text and in JSON."""
    said = json.loads(output_of(call(2, "topo", "--json")))
    assert list(said)[:3] == programs.JSON_HEAD, said
    assert [place["node"] for place in said["ranks"]] == ["node 0"] * 2, said
    assert all(place["cores"] and place["computes"].startswith("host, ") for place in said["ranks"])
    assert said["groups"] == [2] and said["adapters"] >= 1 and said["shaped_links"] == [], said
    text = output_of(call(2, "topo"))
    for rank, place in enumerate(said["ranks"]):
        assert f"# rank {rank}: node 0, cores {place['cores']}, {place['computes']}\n" in text, text
    assert "# groups        = 2\n" in text, text
    refused(call(1, "topo", "x"), "x")


run_checks(globals())
