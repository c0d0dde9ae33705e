# SPDX-License-Identifier: BSD-3-Clause
"""verify under mpiexec: it says what it found, of whom, and what it did not judge; run finds the
same. Called as job.py says, and with the library of fake_host.cpp where it computes with BLAS.
"""

import json
import os

import programs
from job import DECK, FOLDER, MORE, MPIEXEC, NUMBER, PROGRAM, call, rows
from programs import output_of, run_checks, settings


def check_verify():
    """Every case has a line and an object with its settings; the serial training of each model
    comes first."""
    deck = (
        "verify",
        DECK,
        *settings(seq=9, ranks=3, groups="1,1+2", replicas="1,3", dtype="fp32,bf16"),
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
        asked = case["settings"]
        ranks = (
            str(asked["ranks"])
            if asked["replicas"] == 1
            else f"{asked['replicas']}x{asked['ranks'] // asked['replicas']}"
        )
        assert row == (
            asked["schedule"],
            ranks,
            asked["groups"],
            asked["dtype"],
            case["against"].removesuffix(" reference"),
        ), (row, case)
        assert 0 < case["limit_share"] < 1, case
        assert (
            (case["weight_error"] > 0) == bool(case["weight_tensor"]) == (asked["dtype"] == "fp32")
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
        *settings(seq=9, ranks=2, groups=1, replicas=2),
    )
    done = call(2, *deck, *settings(schedule="ddp,tawpipe"))
    reason = "no case has schedule = ddp: replicas: ddp has no replicas; use replicas = 1"
    assert done.returncode == 0 and f"\n# {reason}\n" in done.stdout, done.stdout + done.stderr
    assert (
        f"\n# not judged: {reason}\n" in done.stdout
        and "\nRESULT: VALID: 1 case agrees " in done.stdout
    )
    alone = call(2, *deck, *settings(schedule="ddp"))
    assert alone.returncode == 2 and alone.stderr.endswith(
        "replicas: ddp has no replicas; use replicas = 1\n"
    ), alone
    run = call(2, "run", *deck[1:], *settings(schedule="ddp,tawpipe"), "-o", FOLDER / "unsuited.h5")
    assert run.returncode == 0, run.stdout
    assert run.stdout.count(f"# {reason}\n") == 2, "before the first case and before the verdict"


def check_late_rank():
    """A rank that comes to MPI later than the watchdog waits in a step, as on a crowded machine."""
    run = [
        PROGRAM,
        "verify",
        str(DECK),
        *settings(seq=9, groups=1, ranks=2),
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
        one = (*settings(seq=9, ranks=ranks, groups=1, schedule="ddp"),)
        variables = [
            f"LD_PRELOAD={MORE[0]}",
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


run_checks(globals())
