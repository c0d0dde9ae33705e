# SPDX-License-Identifier: BSD-3-Clause
"""The program under mpiexec: a deck runs once, its figures agree with its timeline and with what the
kernel says of memory, limits and repetitions hold, topo tells places."""

import concurrent.futures
import datetime
import itertools
import json
import os
import pathlib
import re
import time

import h5py
import numpy
import pytest
from minitaw import evidence, record
from programs import (
    BUILD,
    JSON_HEAD,
    MINITAW,
    MPIEXEC,
    REPOSITORY,
    SMALL,
    call,
    minitaw,
    on_ranks,
    output_of,
    refused,
    rows,
    says,
    settings,
    told,
)

# the program with the devices of fake_host.cpp
NO_DEVICE = BUILD / "tests/miniapp/minitaw_no_device"
FAKE_HOST = BUILD / "tests/miniapp/libfake_host.so"
DECK = (
    SMALL
    + """schedule = ["tawpipe", "ddp"]
ranks = [2, 3]
groups = [1, "1+1", "1+2"]
vocab = 256
data = "/usr/share/common-licenses/GPL-3"
seq = 9
micro_batches = 6
"""
)
PAIR = {"schedule": "ddp", "ranks": 2, "groups": 1}


@pytest.fixture(autouse=True)
def deck(own_folder):
    pathlib.Path("job.toml").write_text(DECK)


def run(processes, file, *options, variables=(), **changes):
    words = ("run", "job.toml", *settings(**changes), *options, "-o", file)
    return on_ranks(processes, *words, variables=variables)


def statuses(file):
    return [row["status"] for row in rows(file)]


def test_a_deck_runs_once():
    """Cases on all ranks and on some; show closes as run did, and the file keeps that."""
    done = run(3, "job.h5")
    output_of(done)
    assert statuses("job.h5") == ["ok"] * 8
    closing = output_of(minitaw("show", "job.h5")).splitlines()[-2:]
    assert closing == done.stdout.splitlines()[-3:-1]
    with h5py.File("job.h5") as file:
        kept = file["runs"].attrs
        assert closing[0] == f"figure of merit: {kept['figures_of_merit'][0]}"
        assert closing[1] == f"RESULT: {kept['verdict']}" and kept["verdict"].startswith("VALID")
    again = run(3, "job.h5")
    assert again.returncode == 0 and "8 of 8 cases" in again.stdout
    assert {*os.listdir()} == {"job.toml", "job.h5"}


@pytest.mark.parametrize(
    "changes, file, word",
    [
        ({"heads": 3}, "no.h5", "heads"),
        ({"dtype": "bf16", "attention": "host"}, "no.h5", "attention = host"),
        ({}, "no/such/folder.h5", "folder"),
    ],
)
def test_bad_input_ends_on_every_rank(changes, file, word):
    """Also where only rank 0 finds it."""
    refused(run(3, file, **changes), word)


def test_results_agree_with_the_timeline():
    """Both precisions in one sweep, each case in UTC and with a check."""
    begin = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    words = ("job.h5", "--timeline", "--peak", "2e9")
    changes = {"dtype": "fp32,bf16", "ranks": 3, "groups": "1+2", "replicas": "1,3"}
    said = output_of(run(3, *words, variables=["TZ=UTC-9"], **changes))
    assert said.count("# left out 2 combinations: replicas: ddp") == 2, "before and after the cases"
    cases = rows("job.h5")
    assert {(row["dtype"], row["schedule"], row["replicas"]) for row in cases} == {
        (dtype, *case)
        for dtype in ("fp32", "bf16")
        for case in (("tawpipe", 1), ("tawpipe", 3), ("ddp", 1))
    }
    for row in cases:
        started = datetime.datetime.fromisoformat(row["started"])
        assert begin <= started <= datetime.datetime.now(datetime.UTC)
        assert row["peak"] == 2e-3 and row["attention_used"] not in ("", "auto")
        transport = row["transport_used"].split()[0]
        assert row["bytes_source"] == {"mpi": "counted", "nccl": "by formula"}[transport]
        parts = [row[name] for name in row if re.fullmatch(r"(compute|idle|exposed_\w+)_s", name)]
        assert sum(parts) == pytest.approx(row["accounted_s"], rel=1e-6) and len(parts) == 7
        assert 0 <= row["gradient_error"] < (1e-5 if row["dtype"] == "fp32" else 1e-2)
    with h5py.File("job.h5") as file:
        columns = (file[f"runs/{name}"] for name in ("ticks", "accounted_step", "accounted_s"))
        for number, figures in enumerate(zip(*columns, strict=True)):
            check_account(file[f"runs/{number:04}"], *figures)


def test_the_evidence_holds_for_runs_with_tied_embeddings():
    """Of the optimiser's memory too: one matrix, two copies, all on every rank, or a part of it."""
    schedules = "zbv,1f1b,ddp,fsdp"
    output_of(run(2, "job.h5", ranks=2, groups=1, layers=4, schedule=schedules, tied="true"))
    for _, case in record.load("job.h5").iterrows():
        checks = evidence.by_identity, evidence.by_columns, evidence.by_memory
        assert [fault for check in checks for fault in check(case)] == [], case.schedule


def check_account(case, ticks, step, length):
    """The times and ticks of a case against its timeline. Ranks of a node share a clock."""
    events = {name: column[:] for name, column in case["timeline"].items()}
    assert len({*map(len, events.values())}) == 1 and {*events["rank"]} == {0, 1, 2}
    assert (events["begin"] <= events["end"]).all()
    assert length == pytest.approx(events["end"].max(), abs=1e-12)
    assert length > case["seconds"][step].max() - 1e-9
    lane, kind = ([*case[f"timeline/{name}"].attrs["codes"]] for name in ("lane", "kind"))
    computes = events["lane"] == lane.index("compute")
    joins = events["kind"] == kind.index("join")
    visits = numpy.isin(events["kind"], [kind.index(name) for name in ("F", "BW", "B", "W")])
    assert ticks == numpy.ptp(events["tick"][visits | ~computes]) + 1
    for rank in range(3):
        own = events["rank"] == rank
        computing = (events["end"] - events["begin"])[own & computes & ~joins].sum()
        assert case["time/compute"][rank] == pytest.approx(computing, abs=1e-9) and computing > 0
        assert case["idle_ticks"][rank] == ticks - len({*events["tick"][own & visits]})


def test_what_cannot_run_is_recorded_and_does_not_stop_the_sweep():
    one = PAIR | {"seq": "9,200", "repeats": 2}
    small = run(2, "job.h5", "--memory", "41910K", **one)
    assert small.returncode == 1 and small.stderr == "", told(small)
    assert "skipped: needs" in small.stdout and small.stdout.count("\n# needs ") == 1
    assert statuses("job.h5") == ["ok", "ok", "skipped"]
    assert rows("job.h5")[0]["gradient_error"] is None, "the case fits, its reference does not"
    whole = run(2, "job.h5", **one)
    assert whole.returncode == 0 and "has 1 of 2 cases already" in whole.stdout


def test_a_failed_case_stays():
    """Too large for any machine: malloc says so. It is not repeated."""
    large = PAIR | {"hidden": "1M", "ffn": "4M", "repeats": 2}
    words = ("job.h5", "--memory", "900000T")
    done = run(2, *words, **large)
    output_of(done, code=1)
    assert statuses("job.h5") == ["oom"] and done.stdout.count("repetition ") == 1
    again = run(2, *words, **large)
    assert again.returncode == 1
    assert "--retry runs it again" in again.stdout and "[1/1" not in again.stdout
    other = run(2, "job.h5", **PAIR)
    assert other.returncode == 0 and "RESULT: VALID" in other.stdout
    assert statuses("job.h5") == ["oom", "ok"]


@pytest.mark.parametrize(
    "limit, seq, steps, said, left",
    [
        (["--time-limit=3"], 9, 1000000, "does not end within the time limit of 3 s", ["timeout"]),
        (["--time-limit=20"], "9,2000", 100, "stopped before the time limit of 20 s", ["ok"]),
        ([], 9, 1000000, "stopped before the Slurm job's time limit", []),
    ],
)
def test_time_limit(limit, seq, steps, said, left):
    """A case that does not end within the limit is a timeout; after a finished one, or late in a
    Slurm job, it is left for the next run."""
    now = int(time.time())
    variables = [f"SLURM_JOB_START_TIME={now - 1000}", f"SLURM_JOB_END_TIME={now + 3}"]
    changes = PAIR | {"seq": seq, "steps": steps}
    done = run(2, "job.h5", *limit, variables=variables, **changes)
    assert done.returncode == 1 and said in done.stdout, told(done)
    assert statuses("job.h5") == left


def test_memory_of_a_process_is_what_plan_says():
    """The largest resident set of a process, as the kernel gives it, within 5 %. Rank 0 also holds
    references and the file. In other environments than ours, processes begin with another size."""
    deck = REPOSITORY / "inputs/quickstart.toml"
    keys = settings(seq=256, steps=1, warmup=0, schedule="tawpipe,zb2,ddp")
    on_ranks(4, "run", deck, *keys, "-o", "memory.h5")
    planned = json.loads(output_of(minitaw("plan", deck, *keys, "--json")))["cases"]
    ours = pathlib.Path("/etc/minitaw-root").exists()
    with h5py.File("memory.h5") as file:
        memory = [file[f"runs/{number:04}/memory"] for number in range(len(planned))]
        for case, measured in zip(planned, memory):
            for rank in (1, 2, 3):
                peak, begin = (int(measured[f"process_{name}"][rank]) for name in ("peak", "begin"))
                if begin == 0:
                    pytest.skip("this kernel lets no process start a new peak")
                expected, room = case["host_bytes"][rank], 0.05 * peak
                assert peak - begin == pytest.approx(expected["step"], abs=room + (4 << 20))
                assert not ours or peak == pytest.approx(expected["total"], abs=room)


def test_memory_of_a_case_is_the_same_in_any_place():
    """To the byte: what libraries keep from their first calls is not the first case's."""
    output_of(run(2, "job.h5", **PAIR | {"transport": "auto,mpi"}))
    with h5py.File("job.h5") as file:
        first, second = (file[f"runs/{number:04}/memory"] for number in range(2))
        for figure in ("measured", "other"):
            assert (first[figure][()] == second[figure][()]).all(), figure


def test_repetitions_run_in_random_order():
    """A row for each, in the order in which they ran."""
    seconds = -time.monotonic()
    output_of(run(2, "job.h5", "--interleave", ranks=2, groups=1, repeats=3))
    seconds += time.monotonic()
    order = [(row["case"], row["repetition"]) for row in rows("job.h5")]
    assert sorted(order, key=lambda run: run[0]) == [*itertools.product(range(2), range(3))]
    assert order != sorted(order)
    with h5py.File("job.h5") as file:
        samples = [file[f"runs/{number:04}/seconds"][:] for number in range(6)]
    assert all(some.shape == (3, 2) for some in samples)
    assert 0 < sum(some.max(axis=1).sum() for some in samples) < seconds


def test_no_rank_is_called_slowest_where_threads_outnumber_the_cores():
    threads = f"OMP_NUM_THREADS={os.cpu_count() + 1}"
    said = output_of(run(2, "job.h5", variables=[threads], **PAIR))
    (row,) = rows("job.h5")
    assert (row["slowest_rank"], row["slowest_ratio"]) == (-1, None)
    assert "computes slowest" not in said


def test_a_clock_that_was_slowed_down_makes_the_result_invalid():
    """A library halves what every clock of libc says; the processor's counter tells."""
    deck = REPOSITORY / "inputs/acceptance/small.toml"
    short = settings(schedule="ddp", seq=128, steps=3, warmup=1, repeats=1)
    slow = BUILD / "tests/miniapp/libhalved_clock.so"
    variables = [f"LD_PRELOAD={slow}", "ASAN_OPTIONS=verify_asan_link_order=0"]
    done = on_ranks(4, "run", deck, *short, "-o", "slow.h5", variables=variables)
    with h5py.File("slow.h5") as file:
        monotonic, real, counter = numpy.diff(file["runs/0000/clocks"][:], axis=0)[0]
        if numpy.isnan(counter):
            pytest.skip("this processor has no constant counter")
    said = output_of(done, code=1)
    assert re.search(r"RESULT: INVALID: .* wrong: rank 0: the clocks disagree about the", said)
    assert counter == pytest.approx(2 * monotonic, rel=0.01)
    assert f"monotonic {monotonic:.6f} s, real {real:.6f} s, counter {counter:.6f} s" in said


@pytest.mark.skipif(not NO_DEVICE.exists(), reason="the program has devices of its own")
@pytest.mark.parametrize("ranks, without", [(2, 0), (3, 1)])
def test_a_rank_without_its_device_ends_the_job(ranks, without):
    """At once, before the 30 s alarm of a job that waits; it says which rank on which node."""
    variables = [f"RANK_WITHOUT_DEVICE={without}"]
    begin = time.monotonic()
    done = on_ranks(ranks, "run", "job.toml", variables=variables, program=NO_DEVICE)
    refused(done, f"rank {without}", "node 0", "devices")
    assert time.monotonic() - begin < 25


@pytest.mark.skipif(not NO_DEVICE.exists(), reason="the program has devices of its own")
@pytest.mark.parametrize(
    "ranks, devices, sharing", [(2, 2, ""), (2, 1, "0 and 1"), (3, 2, "0 and 2")]
)
def test_devices_that_only_kokkos_knows_are_not_shared_unasked(ranks, devices, sharing):
    """And what is not known of them is said."""
    known = {"variables": [f"UNKNOWN_DEVICES={devices}"], "program": NO_DEVICE}
    begin = ["run", "job.toml", *settings(ranks=ranks, schedule="ddp", groups=1)]
    done = on_ranks(ranks, *begin, *(["--share-devices"] if sharing else []), **known)
    says(output_of(done), "device 0, OpenMP of unknown name, of unknown memory", "Kokkos alone")
    if sharing:
        alone = on_ranks(ranks, *begin, **known)
        refused(alone, f"ranks {sharing}", "device 0 of node 0", "--share-devices")


def test_a_rank_without_kokkos_ends_the_job():
    """Its exit code is not told: MPICH's mpiexec passes on that of the rank that it waits for last."""
    own = [MINITAW, "run", "job.toml"]
    done = call(MPIEXEC, "-n", 1, *own, ":", "-n", 1, "env", "KOKKOS_NUM_THREADS=x", *own)
    assert "KOKKOS_NUM_THREADS" in done.stderr


def apart(*words):
    """The program on two ranks, each in a folder of its own: "0" and "1"."""
    own = [[*"-n 1 -wdir".split(), pathlib.Path(str(rank)).resolve(), MINITAW] for rank in (0, 1)]
    return call(MPIEXEC, *own[0], *words, ":", *own[1], *words)


TEXT = b"abcdefghi" * 9
ORDER = b"0F0,,0B0,\n1F0,1B0\n"
# the file's name, what ranks 0 and 1 have under it, and the sentence
FILES = [
    ("a.txt", TEXT, TEXT[:-1] + b"j", "rank 1 on node 0: data: a.txt has the checksum "),
    ("a.txt", TEXT, TEXT[:-1], "rank 1 on node 0: data: a.txt has the checksum "),
    ("a.txt", TEXT, TEXT[:9], "data: a.txt has 9 bytes"),
    ("a.txt", TEXT, None, "rank 1 on node 0: /job.toml:9: data: a.txt is not a file"),
    ("a.txt", None, TEXT, "rank 0 on node 0: /job.toml:9: data: a.txt is not a file"),
    ("a.csv", ORDER, b"0F0,0B0\n", "rank 1 on node 0: "),
    ("a.csv", ORDER, ORDER.replace(b"\n", b"\r\n"), "rank 1 on node 0: schedule: csv:file=a.csv"),
    ("a.csv", None, ORDER, "rank 0 has read something else"),
]


@pytest.mark.parametrize("verb", ["run", "verify"])
@pytest.mark.parametrize("name, first, second, sentence", FILES)
def test_a_file_that_is_not_the_same_for_every_rank_is_refused(verb, name, first, second, sentence):
    """Before anything starts, with the rank, its node and the file; also where another schedule of
    the deck needs no file."""
    for rank, content in enumerate([first, second]):
        pathlib.Path(str(rank)).mkdir()
        if content is not None:
            pathlib.Path(str(rank), name).write_bytes(content)
    changes = PAIR | {
        "seq": 9,
        "layers": 2,
        "micro_batches": 1,
        "schedule": f"csv:file={name},1f1b",
    }
    if name.endswith("txt"):
        changes |= {"schedule": "ddp", "micro_batches": 2, "data": name}
    done = apart(verb, pathlib.Path("job.toml").resolve(), *settings(**changes))
    refused(done, name, *sentence.split("/job.toml:9: "))
    assert not [*pathlib.Path().glob("*/*.h5*")]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("barriers", [1, 5, 9, 14, 20])
@pytest.mark.parametrize("verb", ["run", "verify"])
def test_an_error_on_one_rank_ends_the_job(verb, barriers, rank):
    """Wherever it comes, at once, with one sentence of that rank: MPI fails it."""
    variables = [f"LD_PRELOAD={FAKE_HOST}", f"BROKEN_RANK={rank}", f"BARRIERS={barriers}"]
    variables.append("ASAN_OPTIONS=verify_asan_link_order=0")
    begin = time.monotonic()
    two = settings(**PAIR | {"seq": "9,10"})
    done = on_ranks(2, verb, "job.toml", *two, variables=variables)
    assert done.returncode == 1 and time.monotonic() - begin < 25, told(done)
    said = re.findall(r"(?m)^minitaw: .*", done.stderr)
    assert len(said) == 1 and re.match(
        rf"minitaw: rank {rank}( on node 0)?: MPI_Ibarrier: ", said[0]
    )


def test_an_error_in_a_step_ends_the_job():
    """Rank 1's file becomes shorter while a case runs."""
    for rank in "01":
        pathlib.Path(rank).mkdir()
        pathlib.Path(rank, "a.txt").write_bytes(TEXT)
    changes = PAIR | {"data": "a.txt", "steps": 1000000, "warmup": 0}
    words = ["run", pathlib.Path("job.toml").resolve(), "-o", "job.h5", *settings(**changes)]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = pool.submit(apart, *words)
        mark = pathlib.Path("0/job.h5.running")
        while not (running.done() or (mark.exists() and "ddp" in mark.read_text())):
            time.sleep(0.1)
        time.sleep(1)
        os.truncate("1/a.txt", 5)
        done = running.result()
    sentence = 'minitaw: rank 1 on node 0: data = "a.txt": the file became shorter or unreadable\n'
    assert done.returncode == 1 and done.stderr.count("minitaw: ") == 1, told(done)
    assert sentence in done.stderr


def test_topo_tells_places_and_groups():
    """As a text and in JSON."""
    said = json.loads(output_of(on_ranks(2, "topo", "--json")))
    text = output_of(on_ranks(2, "topo"))
    assert [*said][:3] == JSON_HEAD
    assert said["groups"] == [2] and said["adapters"] >= 1 and said["shaped_links"] == []
    assert "# groups        = 2\n" in text and len(said["ranks"]) == 2
    for rank, place in enumerate(said["ranks"]):
        assert place["node"] == "node 0" and place["computes"].startswith("host, ")
        assert f"# rank {rank}: node 0, cores {place['cores']}, {place['computes']}\n" in text
    refused(on_ranks(1, "topo", "x"), "x")
