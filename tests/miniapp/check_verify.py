# SPDX-License-Identifier: BSD-3-Clause
"""verify under mpiexec: it says what it found, of whom, and what it did not judge; run finds the
same. Called as job.py says, and with the library of fake_host.cpp where it computes with BLAS.
"""

import json
import os

import programs
from job import DECK, FOLDER, MORE, MPIEXEC, NUMBER, PROGRAM, call, rows
from programs import run_checks, settings


def check_verify():
    """Every case has a line and an object with its settings; the serial training of each model
    comes first."""
    sweep = settings(seq=9, ranks=3, groups="1,1+2", replicas="1,3", dtype="fp32,bf16")
    deck = ("verify", DECK, *sweep)
    done, told = call(3, *deck), json.loads(call(3, *deck, "--json").stdout)
    assert done.returncode == 0 and done.stderr == "" and told["valid"], done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert list(told)[:4] == [*programs.JSON_HEAD, "verdict"], told
    assert lines[-1] == f"RESULT: {told['verdict']}", told["verdict"]
    heads = [n for n, line in enumerate(lines) if " against " in line and "result" in line]
    (head,) = heads
    assert lines[head + 2] == "# case 1 of 12: its serial and its float64 reference", done.stdout
    assert lines[-1] == (
        "RESULT: VALID: 12 cases agree with the serial training, "
        "2 runs of it with the float64 reference"
    ), done.stdout
    assert lines[0] == f"# {told['program']}" and lines[1].startswith("# rank 0: node 0, "), lines
    before = lines[:head]
    assert "# seq           = 9 token" in before, "what was computed stands before the table"
    note = "left out 4 combinations: replicas: ddp has no replicas; use replicas = 1"
    assert f"# {note}" in before and note in told["notes"], told["notes"]

    found = [tuple(line.split()[:6]) for line in lines if line.endswith(" ok")]
    expected = []
    for dtype in ("bf16", "fp32"):
        expected.append(("serial", "1", "1", "1", dtype, "float64"))
        for case in (("tawpipe", "3"), ("tawpipe", "3x1"), ("ddp", "3")):
            expected += [(*case, groups, "1", dtype, "serial") for groups in ("3", "1+2")]
    assert found[0] == expected[0] and sorted(found) == sorted(expected), found
    for row, case in zip(found, told["cases"], strict=True):
        check_case(row, case)

    least = max(told["cases"], key=lambda case: case["limit_share"])
    (room,) = [line for line in lines if line.startswith("# closest to its limit")]
    assert f", {least['settings']['dtype']}: {least['closest']} against " in room, (room, least)
    assert f"{least['settings']['schedule']}, " in room, (room, least)
    assert f", {100 * least['limit_share']:.2g} % of it: " in room, (room, least)


def check_case(row, case):
    """The row of a case names its settings, and its errors are possible."""
    asked = case["settings"]
    ranks, replicas = asked["ranks"], asked["replicas"]
    shape = str(ranks) if replicas == 1 else f"{replicas}x{ranks // replicas}"
    against = case["against"].removesuffix(" reference")
    said = (asked["schedule"], shape, asked["groups"], str(asked["context"]), asked["dtype"])
    assert row == (*said, against), (row, case)
    assert 0 < case["limit_share"] < 1, case
    is_fp32 = asked["dtype"] == "fp32"  # in bf16 all round to the right number
    assert (case["weight_error"] > 0) == is_fp32, case


def check_unsuited():
    """A schedule that the deck's other keys do not suit is not judged, and the verdict says so;
    alone it is refused."""
    deck = ("verify", DECK, *settings(seq=9, ranks=2, groups=1, replicas=2))
    done = call(2, *deck, *settings(schedule="ddp,tawpipe"))
    reason = "left out 1 combination: replicas: ddp has no replicas; use replicas = 1"
    assert done.returncode == 0 and f"\n# {reason}\n" in done.stdout, done.stdout + done.stderr
    assert f"\n# not judged: {reason}\n" in done.stdout
    assert "\nRESULT: VALID: 1 case agrees " in done.stdout
    alone = call(2, *deck, *settings(schedule="ddp"))
    assert alone.returncode == 2, alone
    assert alone.stderr.endswith("replicas: ddp has no replicas; use replicas = 1\n"), alone
    run = call(2, "run", *deck[1:], *settings(schedule="ddp,tawpipe"), "-o", FOLDER / "unsuited.h5")
    assert run.returncode == 0, run.stdout
    assert run.stdout.count(f"# {reason}\n") == 2, "before the first case and before the verdict"


def check_repeat():
    """The same step again has the same bits in every case; no reference is made."""
    deck = ("verify", DECK, *settings(seq=9, ranks=2, groups=1, schedule="ddp,tawpipe"))
    done, told = call(2, *deck, "--repeat", "3"), call(2, *deck, "--repeat", "3", "--json")
    assert done.returncode == told.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(
        "RESULT: VALID: 2 cases, each step 3 times: losses, gradients and weights have the same "
        "bits on every rank\n"
    ), done.stdout
    assert "reference" not in done.stdout and done.stdout.count(": same bits\n") == 2, done.stdout
    said = json.loads(told.stdout)
    assert list(said)[:4] == [*programs.JSON_HEAD, "verdict"], said
    assert done.stdout.endswith(f"RESULT: {said['verdict']}\n") and said["valid"], said
    assert [case["settings"]["schedule"] for case in said["cases"]] == ["ddp", "tawpipe"], said
    assert all(case["passes"] and case["deviations"] == [] for case in said["cases"]), said
    assert call(2, *deck, "--repeat", "1").returncode == 2


def check_late_rank():
    """A rank that comes to MPI later than the watchdog waits in a step, as on a crowded machine."""
    run = [PROGRAM, "verify", str(DECK), *settings(seq=9, groups=1, ranks=2), "--watchdog", "1"]
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
    done = programs.call(*command, cwd=FOLDER)
    assert "does not answer" not in done.stderr and " float64 reference " in done.stdout, (
        done.stdout + done.stderr
    )


def check_faulty_products():
    """Where the program computes with BLAS. A rank whose matrix products are 1 % too large: run and
    verify find it, and their exit code says so. verify prints what its JSON has."""
    for ranks, rank, judged in bool(MORE) * (
        (2, 1, ["ok", "WRONG"]),
        (2, 0, ["WRONG", "WRONG"]),
        (1, 0, ["WRONG", "ok"]),
    ):
        one = settings(seq=9, ranks=ranks, groups=1, schedule="ddp")
        variables = [
            f"LD_PRELOAD={MORE[0]}",
            f"FAULTY_RANK={rank}",
            f"ASAN_OPTIONS={os.environ.get('ASAN_OPTIONS', '')}:verify_asan_link_order=0",
        ]
        if ranks == 2:  # else both err alike
            file = FOLDER / f"faulty{rank}.h5"
            done = call(2, "run", DECK, *one, "-o", file, variables=variables)
            assert done.returncode == 1, done.stdout
            assert "RESULT: INVALID: 1 of 1 case," in done.stdout, done.stdout
            (row,) = rows(file)
            assert row["status"] == "wrong" and row["gradient_error"] > 1e-3, row
            assert "differs from the serial reference" in row["reason"], row
        done = call(ranks, "verify", DECK, *one, variables=variables)
        told = call(ranks, "verify", DECK, *one, "--json", variables=variables)
        assert done.returncode == told.returncode == 1, done.stdout
        check_verdicts(done.stdout, json.loads(told.stdout), judged)


def check_verdicts(text, said, judged):
    """What verify says of the serial training and of a case, one of which is wrong."""
    first = "serial" if judged[0] == "WRONG" else "ddp"
    count = judged.count("WRONG")
    assert f"RESULT: INVALID: {count} of 2 comparisons differ, first {first}, " in text, text
    assert ("# next: minitaw_kernels --verify" in text) == (first == "serial"), text
    assert not said["valid"], said
    lines = [line for line in text.splitlines() if "reference" in line and line[0] not in "R#"]
    for line, case, result in zip(lines, said["cases"], judged, strict=True):
        steps = (case["first_step"], case["later_steps"])
        errors = [step[name] for step in steps for name in ("loss_error", "gradient_error")]
        errors.append(case["weight_error"])
        fields = line.split("reference")[1].split()
        for field, error in zip(fields, errors):
            assert abs(float(field) - error) <= 0.06 * error, (line, errors)
        assert fields[5].rstrip(":") == result and case["passes"] == (result == "ok"), line
        assert case["failure"] == line.partition("WRONG: ")[2], (line, case)
        assert result == "ok" or len(set(fields[:5])) == 5, line


run_checks(globals())
