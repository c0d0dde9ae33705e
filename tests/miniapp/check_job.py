# SPDX-License-Identifier: BSD-3-Clause
"""The program under mpiexec: a deck runs once, bad input ends on every rank with exit 2, verify
says what it found, topo measures. Called with mpiexec, its -n flag, the program, a folder to write
to, the program with the devices of fake_host.cpp and, where it computes with BLAS, its library.
"""

import datetime
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import h5py

MPIEXEC, NUMBER, PROGRAM, FOLDER, NO_DEVICE = sys.argv[1:6]
FOLDER = pathlib.Path(FOLDER)
DECK = FOLDER / "job.toml"
FILE = FOLDER / "job.h5"

TEXT = (
    'schedule = ["tawpipe", "ddp"]\nranks = [2, 3]\ngroups = [1, "1+1", "1+2"]\nlayers = 4\nhidden = 16\nheads = 2\nffn = 24\n'
    'vocab = 256\ndata = "/usr/share/common-licenses/GPL-3"\nseq = [9, 20]\nmicro_batches = 6\nsteps = 3\nwarmup = 1\n'
)


def call(ranks, *arguments, variables=(), program=PROGRAM):
    command = [MPIEXEC, NUMBER, str(ranks), "env", *variables, program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=FOLDER, timeout=240)


def rows(file=FILE):
    """Cases in the file, as a user reads them."""
    done = subprocess.run(
        [PROGRAM, "show", file, "--json"], capture_output=True, text=True, timeout=60
    )
    cases = json.loads(done.stdout)
    valid = bool(cases) and all(row["verdict"].startswith("VALID") for row in cases)
    assert done.returncode == (0 if valid else 1) and done.stderr == "", done.stderr
    return cases


def check_whole_deck():
    """Cases on all ranks and on some; a second run has nothing to do. check_survival.py strikes
    such runs."""
    done = call(3, "run", DECK, "-o", FILE)
    assert done.returncode == 0 and done.stderr == "", done.stdout + done.stderr
    assert done.stdout.rstrip().splitlines()[-2].startswith("RESULT: VALID"), done.stdout
    cases = rows()
    assert len(cases) == 16 and all(row["status"] == "ok" for row in cases), len(cases)
    shown = subprocess.run([PROGRAM, "show", FILE], capture_output=True, text=True, timeout=60)
    assert (
        shown.returncode == 0
        and shown.stdout.splitlines()[-2:] == done.stdout.rstrip().splitlines()[-3:-1]
    ), shown.stdout
    lines = [
        [line.split("  [")[0].split() for line in text.splitlines() if line.startswith("  ")]
        for text in (done.stdout, shown.stdout)
    ]
    assert len(lines[0]) == 16 and lines[0] == lines[1], lines
    again = call(3, "run", DECK, "-o", FILE)
    assert again.returncode == 0 and "16 of 16 cases" in again.stdout, again.stdout
    assert not list(FOLDER.glob("job.h5?*")), "temporary files are left behind"


def check_refusals():
    for arguments, word in [
        (["run", DECK, "--set", "heads=3"], "heads"),
        (
            ["run", DECK, "--set", "dtype=bf16", "--set", "attention=host", "-o", FOLDER / "no.h5"],
            "attention = host",
        ),
        (["run", DECK, "-o", FOLDER / "no/such/folder.h5"], "folder"),
    ]:
        done = call(3, *arguments)
        assert (
            done.returncode == 2
        ), f"{arguments}: exit {done.returncode}: {done.stdout}{done.stderr}"
        lines = done.stderr.splitlines()
        assert (
            len(lines) == 1 and lines[0].startswith("minitaw: ") and word in lines[0]
        ), f"{arguments}: {done.stderr}"


def check_results():
    """Both precisions in one sweep; the kernel that ran is named, the account adds up, and
    --timeline keeps every action of every rank."""
    file, begin = FOLDER / "results.h5", datetime.datetime.now(datetime.UTC)
    done = call(
        3,
        "run",
        DECK,
        "--set",
        "dtype=fp32,bf16",
        "--set",
        "seq=9",
        "--set",
        "ranks=3",
        "--set",
        "groups=1+2",
        "--set",
        "replicas=1,3",
        "--timeline",
        "--peak",
        "2G",
        "-o",
        file,
        variables=["TZ=UTC-9"],
    )
    assert done.returncode == 0 and done.stderr == "", done.stdout + done.stderr
    cases = rows(file)
    assert {(row["dtype"], row["schedule"], row["replicas"]) for row in cases} == {
        (dtype, *case)
        for dtype in ("fp32", "bf16")
        for case in (("tawpipe", 1), ("tawpipe", 3), ("ddp", 1))
    }, cases
    for row in cases:
        assert (
            begin.replace(microsecond=0)
            <= datetime.datetime.fromisoformat(row["started"])
            <= datetime.datetime.now(datetime.UTC)
        ), row
        assert row["peak"] == 2e-3 and abs(row["mfu"] * 2e-3 / row["tflops_rank"] - 1) < 1e-9, row
        assert row["bytes_source"] == (
            "counted" if row["transport_used"].startswith("mpi") else "by formula"
        ), row
        assert row["attention"] == "auto" and row["attention_used"] not in ("", "auto"), row
        assert row["transport_used"].split()[0] in ("mpi", "nccl"), row
        assert (
            0 <= float(row["gradient_error"]) < (1e-5 if row["dtype"] == "fp32" else 1e-2)
        ), f"a case that fits is checked: {row}"
        step = float(row["compute_s"]) / (
            1 - float(row["exposed_share"]) - float(row["idle_share"])
        )
        exposed = sum(
            float(row[f"exposed_{kind}_s"])
            for kind in ("weights", "gradients", "activations", "embeddings")
        )
        assert (
            float(row["compute_s"]) > 0 and float(row["min_s"]) < 1.01 * step
        ), row  # the slowest rank of a step takes no longer than all
        assert abs(exposed - step * float(row["exposed_share"])) < 1e-6 * step, row
        assert abs(float(row["idle_s"]) - step * float(row["idle_share"])) < 1e-6 * step, row
        assert (
            0 <= float(row["idle_share"]) <= float(row["idle_share_max"]) <= 1
            and 0 <= float(row["overlap"]) <= 1
        ), row
    with h5py.File(file) as record:
        for case in record["cases"].values():
            columns = [column[:] for column in case["timeline"].values()]
            assert len({len(column) for column in columns}) == 1 and set(
                case["timeline/rank"][:]
            ) == {0, 1, 2}
            assert (case["timeline/begin"][:] <= case["timeline/end"][:]).all()
            check_account(case)


def check_account(case):
    """Its times and ticks against the timeline, action by action."""
    events = {name: column[:] for name, column in case["timeline"].items()}
    kinds = [case["timeline/kind"].attrs["codes"][kind] for kind in events["kind"]]
    lanes = [case["timeline/lane"].attrs["codes"][lane] for lane in events["lane"]]
    actions = list(
        zip(events["rank"], lanes, kinds, events["tick"], events["end"] - events["begin"])
    )
    length, step = case["time/length"][()], case["time/step"][()]
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
    assert case["ticks"][()] == max(ticks) - min(ticks) + 1
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
        assert case["idle_ticks"][rank] == case["ticks"][()] - len(busy), (rank, busy)


def check_statuses():
    """What cannot run is recorded and does not stop the sweep; what failed stays until it is
    retried."""
    file = FOLDER / "statuses.h5"
    one = (
        "--set",
        "seq=9,200",
        "--set",
        "ranks=2",
        "--set",
        "groups=1",
        "--set",
        "schedule=ddp",
        "--set",
        "repeats=2",
        "-o",
        file,
    )
    small = call(2, "run", DECK, *one, "--memory", "41910K")
    assert small.returncode == 1 and "skipped: needs" in small.stdout and small.stderr == "", (
        small.stdout + small.stderr
    )
    assert [row["status"] for row in rows(file)] == ["ok", "skipped"] and small.stdout.count(
        "\n# needs "
    ) == 1, small.stdout
    assert rows(file)[0]["gradient_error"] is None, "the case fits, its reference does not"
    whole = call(2, "run", DECK, *one)
    assert (
        whole.returncode == 0 and "has 1 of 2 cases already, which is not run again" in whole.stdout
    ), whole.stdout
    # Too large for any machine: malloc says so. It is not repeated.
    giant = (
        "--set",
        "schedule=ddp",
        "--set",
        "ranks=2",
        "--set",
        "groups=1",
        "--set",
        "seq=9",
        "--set",
        "hidden=1M",
        "--set",
        "ffn=4M",
        "--set",
        "repeats=2",
        "-o",
        FOLDER / "oom.h5",
    )
    done = call(2, "run", DECK, *giant, "--memory", "900000T")
    assert done.returncode == 1 and done.stderr == "", done.stdout + done.stderr
    assert [row["status"] for row in rows(FOLDER / "oom.h5")] == ["oom"] and done.stdout.count(
        "repetition "
    ) == 1, done.stdout
    again = call(2, "run", DECK, *giant, "--memory", "900000T")
    assert (
        again.returncode == 1
        and "--retry runs it again" in again.stdout
        and "[1/1" not in again.stdout
    ), again.stdout
    retried = call(2, "run", DECK, *giant, "--memory", "900000T", "--retry")
    assert (
        retried.returncode == 1 and "[1/2" in retried.stdout and "--retry" not in retried.stdout
    ), retried.stdout
    other = call(2, "run", DECK, *one[:-1], FOLDER / "oom.h5")
    assert (
        other.returncode == 0
        and "RESULT: VALID" in other.stdout
        and len(rows(FOLDER / "oom.h5")) == 3
    ), other.stdout

    # What ran when a job died comes last.
    (FOLDER / "died.h5.running").write_text(rows(file)[0]["identity"] + "\n", encoding="utf-8")
    died = call(2, "run", DECK, *one[:-1], FOLDER / "died.h5")
    assert [row["seq"] for row in rows(FOLDER / "died.h5")] == [
        200,
        9,
    ] and "a job died while a case was running" in died.stdout, died.stdout


def check_time_limit():
    """A case that does not end within the limit is a timeout; behind a finished one, or late in a
    Slurm job, it is left for the next run."""
    now = int(time.time())
    for seq, steps, options, variables, said, statuses in (
        (
            9,
            1000000,
            ["--time-limit", "4s"],
            [],
            "it does not end within the time limit of 0:04",
            ["timeout"],
        ),
        (
            "9,20000",
            200,
            ["--time-limit", "1h"],
            [],
            "stopped before the time limit of 1:00:00",
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
            "--set",
            "schedule=ddp",
            "--set",
            f"seq={seq}",
            "--set",
            "ranks=2",
            "--set",
            "groups=1",
            "--set",
            f"steps={steps}",
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
    settings = (
        "--set",
        "seq=128,512",
        "--set",
        "steps=1",
        "--set",
        "warmup=0",
        "--set",
        "schedule=tawpipe,weipipe,zb2,ddp",
    )
    call(4, "run", deck, *settings, "-o", file)
    done = subprocess.run(
        [PROGRAM, "plan", deck, *settings, "--json"], capture_output=True, text=True, timeout=60
    )
    ours = pathlib.Path("/etc/minitaw-root").exists()
    with h5py.File(file) as record:
        for number, planned in enumerate(json.loads(done.stdout)["cases"]):
            memory = record[f"cases/{number:04}/memory"]
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


def check_case_limit():
    """A case may take ten times what is expected: 160 FLOP a step and rank at 0.5 GFLOP/s. What was
    skipped before it tells nothing."""
    file = FOLDER / "case_limit.h5"
    tiny = {
        "schedule": "ddp",
        "ranks": 2,
        "groups": 1,
        "layers": 1,
        "hidden": 2,
        "heads": 1,
        "ffn": 1,
        "vocab": 2,
        "data": "synthetic",
        "micro_batches": 2,
        "warmup": 0,
        "seq": "300000,1",
        "steps": 1000000,
    }
    done = call(
        2,
        "run",
        DECK,
        *(f"--set={key}={value}" for key, value in tiny.items()),
        "--memory",
        "60M",
        "--watchdog",
        "4",
        "-o",
        file,
        variables=["OMP_NUM_THREADS=1"],
    )
    assert [row["status"] for row in rows(file)] == ["skipped", "timeout"], done.stdout
    assert "it took longer than 0:07, 10 times what was expected" in done.stdout, done.stdout


def check_repeats():
    """Repetitions in random order: all samples are there, in as many repetitions, and the order is
    known."""
    file = FOLDER / "repeats.h5"
    seconds = -time.monotonic()
    done = call(
        3,
        "run",
        DECK,
        "--set",
        "seq=9",
        "--set",
        "ranks=3",
        "--set",
        "groups=1,1+2",
        "--set",
        "repeats=4",
        "--interleave=5",
        "-o",
        file,
    )
    assert done.returncode == 0 and done.stderr == "", done.stdout + done.stderr
    seconds += time.monotonic()
    positions = []
    with h5py.File(file) as record:
        recorded = sum(case["seconds"][:].max(axis=1).sum() for case in record["cases"].values())
        assert 0 < recorded < seconds, f"{recorded} s of steps in a run of {seconds} s"
        for case in record["cases"].values():
            assert case["seconds"].shape == (12, 3) and list(case["repetition"]) == [
                i // 3 for i in range(12)
            ]
            assert list(case["position"]) == sorted(case["position"])
            positions += list(case["position"])
        assert sorted(positions) == list(range(16)) and positions != list(range(16)), positions
        log = "\n".join(record["provenance/log"].asstr()[:])
    assert log.splitlines() == done.stdout.splitlines(), "the record holds what was printed"


def check_verify():
    """Every case has a line and an object with its settings; the serial training of each model
    comes first."""
    deck = (
        "verify",
        DECK,
        "--set",
        "seq=9",
        "--set",
        "ranks=3",
        "--set",
        "groups=1,1+2",
        "--set",
        "replicas=1,3",
        "--set",
        "dtype=fp32,bf16",
    )
    done, told = call(3, *deck), json.loads(call(3, *deck, "--json").stdout)
    assert done.returncode == 0 and done.stderr == "" and told["valid"], done.stdout + done.stderr
    lines = done.stdout.splitlines()
    (head,) = [
        number for number, line in enumerate(lines) if " against " in line and "result" in line
    ]
    assert lines[head + 2] == "# case 1 of 12: its serial and its float64 reference", done.stdout
    assert lines[-1] == (
        "RESULT: VALID: 12 cases agree with the serial training, "
        "2 runs of it with the float64 reference"
    ), done.stdout
    assert lines[0] == f"# {told['program']}" and lines[1].startswith("# rank 0: node 0, "), lines[
        :2
    ]
    assert (
        "# seq           = 9 token" in lines[:head]
    ), "what was computed stands in front of the table"
    note = "left out 4 combinations: replicas: ddp has no replicas; use replicas = 1"
    assert f"# {note}" in lines[:head] and note in told["notes"], told["notes"]
    found = [tuple(line.split()[:5]) for line in lines if line.endswith(" ok")]
    cases = [("tawpipe", "3"), ("tawpipe", "3x1"), ("ddp", "3")]
    assert found[0] == ("serial", "1", "1", "fp32", "float64") and sorted(found) == sorted(
        row
        for dtype in ("fp32", "bf16")
        for row in (
            ("serial", "1", "1", dtype, "float64"),
            *((*case, groups, dtype, "serial") for case in cases for groups in ("3", "1+2")),
        )
    ), found
    for row, case in zip(found, told["cases"], strict=True):
        settings = case["settings"]
        ranks = (
            str(settings["ranks"])
            if settings["replicas"] == 1
            else f"{settings['replicas']}x{settings['ranks'] // settings['replicas']}"
        )
        assert row == (
            settings["schedule"],
            ranks,
            settings["groups"],
            settings["dtype"],
            case["against"].removesuffix(" reference"),
        ), (row, case)
        assert 0 < case["limit_share"] < 1, case
        assert (
            (case["weight_error"] > 0)
            == bool(case["weight_tensor"])
            == (settings["dtype"] == "fp32")
        ), f"in bf16 all round to the right number: {case}"

    least = max(told["cases"], key=lambda case: case["limit_share"])
    (room,) = [line for line in lines if line.startswith("# closest to its limit")]
    assert f", {least['settings']['dtype']}: {least['closest']} against " in room, (room, least)
    assert f"{least['settings']['schedule']}, " in room, (room, least)
    assert f", {100 * least['limit_share']:.2g} % of it: " in room, (room, least)


def check_unsuited():
    """A schedule that the deck's other keys do not suit is not judged, and the verdict says so;
    alone it is refused."""
    deck = (
        "verify",
        DECK,
        "--set",
        "seq=9",
        "--set",
        "ranks=2",
        "--set",
        "groups=1",
        "--set",
        "replicas=2",
    )
    done = call(2, *deck, "--set", "schedule=ddp,tawpipe")
    reason = "no case has schedule = ddp: replicas: ddp has no replicas; use replicas = 1"
    assert done.returncode == 0 and f"\n# {reason}\n" in done.stdout, done.stdout + done.stderr
    assert (
        f"\n# not judged: {reason}\n" in done.stdout
        and "\nRESULT: VALID: 1 case agrees " in done.stdout
    )
    alone = call(2, *deck, "--set", "schedule=ddp")
    assert alone.returncode == 2 and alone.stderr.endswith(
        "replicas: ddp has no replicas; use replicas = 1\n"
    ), alone
    run = call(2, "run", *deck[1:], "--set", "schedule=ddp,tawpipe", "-o", FOLDER / "unsuited.h5")
    assert run.returncode == 0, run.stdout
    assert run.stdout.count(f"# {reason}\n") == 2, "before the first case and before the verdict"


def check_late_rank():
    """A rank that comes to MPI later than the watchdog waits in a step, as on a crowded machine."""
    run = [
        PROGRAM,
        "verify",
        str(DECK),
        "--set",
        "seq=9",
        "--set",
        "groups=1",
        "--set",
        "ranks=2",
        "--watchdog",
        "1",
    ]
    command = [
        MPIEXEC,
        NUMBER,
        "1",
        *run,
        ":",
        NUMBER,
        "1",
        "sh",
        "-c",
        'sleep 2.5; exec "$@"',
        "sh",
        *run,
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=FOLDER, timeout=240)
    assert "does not answer" not in done.stderr and " float64 reference " in done.stdout, (
        done.stdout + done.stderr
    )


def check_rank_that_cannot_start():
    """Without its device, or without Kokkos: the job ends at once, and says which rank on which
    node, and why."""
    for ranks, without in (2, 0), (2, 1), (3, 1):
        begin = time.monotonic()
        done = call(
            ranks, "run", DECK, variables=[f"RANK_WITHOUT_DEVICE={without}"], program=NO_DEVICE
        )
        assert (
            done.stderr
            == f"minitaw: rank {without} on node 0: counting the devices: there is none\n"
            and done.stdout == ""
        ), done
        assert (
            done.returncode == 2 and time.monotonic() - begin < 25
        ), "it ends before the 30 s alarm of a job that waits"
    run = [PROGRAM, "run", str(DECK)]
    command = [MPIEXEC, NUMBER, "1", *run, ":", NUMBER, "1", "env", "KOKKOS_NUM_THREADS=x", *run]
    done = subprocess.run(command, capture_output=True, text=True, cwd=FOLDER, timeout=25)
    assert (
        "KOKKOS_NUM_THREADS" in done.stderr
    ), done  # MPICH's mpiexec passes on the code of the rank that it waits for last


def check_faulty_products():
    """A rank whose matrix products are 1 % too large: run and verify find it, and their exit code
    says so. verify prints what its JSON has."""
    for ranks, rank, judged in (
        (2, 1, ["ok", "WRONG"]),
        (2, 0, ["WRONG", "WRONG"]),
        (1, 0, ["WRONG", "ok"]),
    ):
        one = (
            "--set",
            "seq=9",
            "--set",
            f"ranks={ranks}",
            "--set",
            "groups=1",
            "--set",
            "schedule=ddp",
        )
        variables = [
            f"LD_PRELOAD={sys.argv[6]}",
            f"FAULTY_RANK={rank}",
            f"ASAN_OPTIONS={os.environ.get('ASAN_OPTIONS', '')}:verify_asan_link_order=0",
        ]
        if ranks == 2:  # else both err alike
            done = call(
                2, "run", DECK, *one, "-o", FOLDER / f"faulty{rank}.h5", variables=variables
            )
            (row,) = rows(FOLDER / f"faulty{rank}.h5")
            assert (
                done.returncode == 1
                and "RESULT: INVALID: 1 of 1 case," in done.stdout
                and row["status"] == "wrong"
            ), done.stdout
            assert (
                row["gradient_error"] > 1e-3
                and "differs from the serial reference" in row["reason"]
            ), row
        done, told = (
            call(ranks, "verify", DECK, *one, *form, variables=variables)
            for form in ([], ["--json"])
        )
        said, lines = json.loads(told.stdout), [
            line
            for line in done.stdout.splitlines()
            if "reference" in line and not line.startswith(("R", "#"))
        ]
        first = "serial" if judged[0] == "WRONG" else "ddp"
        closing = (
            f"RESULT: INVALID: {judged.count('WRONG')} of 2 comparisons differ, first {first}, "
        )
        assert (
            done.returncode == told.returncode == 1 and closing in done.stdout and not said["valid"]
        ), done.stdout
        assert ("# next: minitaw_kernels --verify" in done.stdout) == (
            first == "serial"
        ), done.stdout
        for line, case, result in zip(lines, said["cases"], judged, strict=True):
            first, later = case["first_step"], case["later_steps"]
            errors = [
                first["loss_error"],
                first["gradient_error"],
                later["loss_error"],
                later["gradient_error"],
                case["weight_error"],
            ]
            fields = line.split("reference")[1].split()
            assert all(
                abs(float(field) - error) <= 0.06 * error for field, error in zip(fields, errors)
            ), (line, errors)
            assert fields[5].rstrip(":") == result and case["passes"] == (result == "ok"), line
            assert case["failure"] == line.partition("WRONG: ")[2], (line, case)
            assert result == "ok" or len(set(fields[:5])) == 5, line


def check_topo():
    """Numbers that can be, for groups of any size."""

    def topo(ranks, *options, code=0):
        done = call(ranks, "topo", "--seconds", "0.05", *options)
        assert (
            done.returncode == code
        ), f"{options}: exit {done.returncode}: {done.stdout}{done.stderr}"
        return done

    for ranks, groups, options in (
        (4, [1, 3], ["--groups", "1+*"]),
        (2, [2], []),
        (2, [1, 1], ["--groups", "2"]),
        (1, [1], []),
    ):
        said = json.loads(topo(ranks, "--json", *options).stdout)
        assert (
            said["ranks"] == ranks
            and said["groups"] == groups
            and said["shaped_links"] == []
            and said["adapters"] >= 1
        ), said
        assert (said["inside"] is None) == (max(groups) == 1) and (said["between"] is None) == (
            len(groups) == 1
        ), said
        for rates in filter(None, (said["inside"], said["between"])):
            assert set(rates) == {
                "latency_s",
                "alone_bytes_per_s",
                "shared_bytes_per_s",
                "both_bytes_per_s",
            }, said
            # no message comes before it has been sent, nor faster than memory moves
            assert (
                min(rates.values()) > 0 and rates["latency_s"] > 1e-9 and max(rates.values()) < 1e13
            ), said
    for options in (["--groups", "3"], ["--seconds", "0"]):
        said = topo(2, *options, code=2)
        assert (
            not said.stdout and said.stderr.startswith("minitaw: ") and said.stderr.count("\n") == 1
        ), f"{options}: {said}"


shutil.rmtree(FOLDER, ignore_errors=True)
FOLDER.mkdir(parents=True)
DECK.write_text(TEXT, encoding="utf-8")
for check in (
    check_topo,
    check_refusals,
    check_results,
    check_statuses,
    check_memory,
    check_time_limit,
    check_case_limit,
    check_repeats,
    check_verify,
    check_unsuited,
    check_rank_that_cannot_start,
    *[check_faulty_products] * any(sys.argv[6:]),
    check_late_rank,
    check_whole_deck,
):
    check()
