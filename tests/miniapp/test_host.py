# SPDX-License-Identifier: BSD-3-Clause
"""Threads and cores of ranks, beside what the kernel says of this machine: under settings of
OpenMP, and in control groups that the tests make where they may."""

import contextlib
import json
import os
import pathlib

import pytest
from programs import MINITAW, MPIEXEC, SMALL, call, on_ranks, output_of, rows, says


def first_thread(processor):
    folder = pathlib.Path(f"/sys/devices/system/cpu/cpu{processor}/topology")
    return int((folder / "thread_siblings_list").read_text().replace("-", ",").split(",")[0])


CORES = sorted({*map(first_thread, os.sched_getaffinity(0))})
MANY = len(CORES)
USUAL = ("-u", "OMP_NUM_THREADS", "OMP_PLACES=cores")
pytestmark = pytest.mark.skipif(MANY < 2, reason="ranks on one core cannot lie apart")


def numbers(text):
    """ "0-3,8" """
    ends = [list(map(int, part.split("-"))) for part in text.split(",")]
    return [number for end in ends for number in range(end[0], end[-1] + 1)]


def threads(count):
    return f"host, {count} thread{'s' * (count > 1)}"


@pytest.mark.parametrize(
    ("ranks", "variables", "computing", "cores", "remark"),
    [
        *((1, [f"OMP_PROC_BIND={how}"], MANY, CORES, "") for how in ("close", "spread", "true")),
        (1, ["OMP_PROC_BIND=close", "OMP_NUM_THREADS=1"], 1, CORES[:1], ""),
        (2, ["OMP_PROC_BIND=false"], MANY // 2, CORES, ""),
        (
            2,
            ["OMP_PROC_BIND=close", "OMP_NUM_THREADS=1"],
            1,
            CORES[:1],
            f"ranks 0-1 share core {CORES[0]} while no rank uses core",
        ),
        (
            1,
            ["OMP_PROC_BIND=false", "OMP_THREAD_LIMIT=1"],
            1,
            CORES,
            f"rank 0: OpenMP grants 1 thread instead of {MANY} (OMP_THREAD_LIMIT",
        ),
        (
            2,
            ["OMP_PROC_BIND=false", "OMP_NUM_THREADS=3", "OMP_THREAD_LIMIT=2"],
            2,
            CORES,
            "ranks 0-1: OpenMP grants 2 threads instead of 3 (OMP_THREAD_LIMIT",
        ),
        (
            1,
            ["OMP_PROC_BIND=false", "OMP_DYNAMIC=true"],
            MANY,
            CORES,
            "rank 0: OMP_DYNAMIC is switched off",
        ),
    ],
)
def test_threads_and_cores_are_those_that_ranks_have(ranks, variables, computing, cores, remark):
    variables = (*USUAL, *variables)
    said = json.loads(output_of(on_ranks(ranks, "topo", "--json", variables=variables)))
    assert [numbers(place["cores"]) for place in said["ranks"]] == [cores] * ranks
    assert [place["computes"] for place in said["ranks"]] == [threads(computing)] * ranks
    assert len(said["remarks"]) == bool(remark) and "".join(said["remarks"]).startswith(remark)
    text = output_of(on_ranks(ranks, "topo", variables=variables))
    assert [line for line in said["remarks"] if f"\n# {line}\n" not in text] == []


def test_ranks_that_the_launcher_binds_share_no_core():
    bound = pathlib.Path("bound")
    which = f"case ${{PMI_RANK:-$OMPI_COMM_WORLD_RANK}} in 0) c={CORES[0]};; *) c={CORES[1]};; esac"
    bound.write_text(f'#!/bin/sh\n{which}\nexec taskset -c $c {MINITAW} "$@"\n')
    bound.chmod(0o755)
    variables = (*USUAL, "OMP_PROC_BIND=close")
    done = on_ranks(2, "topo", "--json", variables=variables, program=bound.resolve())
    said = json.loads(output_of(done))
    assert [numbers(place["cores"]) for place in said["ranks"]] == [[core] for core in CORES[:2]]
    assert said["remarks"] == []


@pytest.mark.parametrize(
    "variables", [["OMP_THREAD_LIMIT=1"], ["OMP_DYNAMIC=true"], ["OMP_MAX_ACTIVE_LEVELS=0"]]
)
def test_what_openmp_does_not_grant_stops_no_kernel(variables):
    pathlib.Path("deck.toml").write_text(SMALL + 'schedule = "ddp"\nvocab = 64\nseq = 8\n')
    variables = ("OMP_PROC_BIND=false", f"OMP_NUM_THREADS={MANY}", *variables)
    words = ("run", "deck.toml", "-o", "host.h5", "--watchdog", 30)
    said = output_of(on_ranks(2, *words, variables=variables))
    says(said, "ranks 0-1: O")
    assert [row["status"] for row in rows("host.h5")] == ["ok"]


@contextlib.contextmanager
def control_group(quota):
    """The words that enter a group of so many microseconds in each tenth of a second."""
    name = f"minitaw-test-{os.getpid()}"
    folders = [pathlib.Path("/sys/fs/cgroup") / sub / name for sub in ("cpu", "cpu,cpuacct", "")]
    folder = next(one for one in folders if one.parent.is_dir())
    unified = folder.parent.name == "cgroup"
    with contextlib.ExitStack() as after:
        try:
            folder.mkdir()
            after.callback(folder.rmdir)
            file = folder / ("cpu.max" if unified else "cpu.cfs_quota_us")
            file.write_text(f"{quota} 100000" if unified else str(quota))
        except OSError as error:
            pytest.skip(f"no processor quota may be set here: {error}")
        yield ("sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh")


def test_a_processor_quota_is_the_number_of_threads_and_no_other_program():
    free = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    with control_group(50_000) as enter:
        one = json.loads(output_of(call(*enter, MINITAW, "topo", "--json", env=free)))
        two = json.loads(
            output_of(call(*enter, MPIEXEC, "-n", 2, MINITAW, "topo", "--json", env=free))
        )
        asked = free | {"OMP_NUM_THREADS": "2"}
        as_asked = json.loads(output_of(call(*enter, MINITAW, "topo", "--json", env=asked)))
        quick = ("screen", "--rounds", 2, "--seconds", 0.01)
        screened = output_of(call(*enter, MINITAW, *quick, env=free), code=3)
    assert [place["computes"] for place in one["ranks"]] == [threads(1)]
    assert [place["computes"] for place in two["ranks"]] == [threads(1)] * 2
    assert [place["computes"] for place in as_asked["ranks"]] == [threads(2)]
    says(one["remarks"][0], "rank 0: a processor quota leaves 0.5 cores", "cpu.", f"of {MANY}")
    says(two["remarks"][0], "ranks 0-1: a processor quota leaves 0.25 cores", "1 thread")
    says(as_asked["remarks"][0], "0.5 cores", "2 threads")
    says(
        screened, one["remarks"][0], "INCONCLUSIVE: a processor quota took up to 50 % of the cores"
    )
    assert "other programs" not in screened
