# SPDX-License-Identifier: BSD-3-Clause
"""verify under mpiexec: it says what it found, of whom, and what it did not judge; run finds the
same."""

import json
import os
import pathlib

import pytest
from programs import (
    BUILD,
    JSON_HEAD,
    MINITAW,
    MPIEXEC,
    SMALL,
    call,
    on_ranks,
    output_of,
    refused,
    rows,
    settings,
    told,
)

# fake_host.cpp, where the program computes with BLAS
FAKE_HOST = BUILD / "tests/miniapp/libfake_host.so"
DECK = (
    SMALL
    + """schedule = ["tawpipe", "ddp"]
vocab = 256
data = "/usr/share/common-licenses/GPL-3"
seq = 9
micro_batches = 6
"""
)


@pytest.fixture(autouse=True)
def deck(own_folder):
    pathlib.Path("job.toml").write_text(DECK, encoding="utf-8")


def verify(processes, *options, **changes):
    return on_ranks(processes, "verify", "job.toml", *settings(**changes), *options)


def test_every_case_has_a_line_and_an_object():
    """With its settings; the serial training of each model comes first."""
    sweep = {"ranks": 3, "groups": "1,1+2", "replicas": "1,3", "dtype": "fp32,bf16"}
    text = output_of(verify(3, **sweep))
    said = json.loads(output_of(verify(3, "--json", **sweep)))
    lines = text.splitlines()
    assert [*said][:4] == [*JSON_HEAD, "verdict"] and said["valid"]
    assert lines[-1] == f"RESULT: {said['verdict']}"
    assert said["verdict"] == (
        "VALID: 12 cases agree with the serial training, " "2 runs of it with the float64 reference"
    )
    (head,) = [n for n, line in enumerate(lines) if " against " in line and "result" in line]
    before = lines[:head]
    assert before[0] == f"# {said['program']}" and before[1].startswith("# rank 0: node 0, ")
    assert "# seq           = 9 token" in before, "what was computed stands before the table"
    note = "left out 4 combinations: replicas: ddp has no replicas; use replicas = 1"
    assert f"# {note}" in before and note in said["notes"]

    found = [tuple(line.split()[:6]) for line in lines if line.endswith(" ok")]
    expected = []
    for dtype in ("bf16", "fp32"):
        expected.append(("serial", "1", "1", "1", dtype, "float64"))
        for case in (("tawpipe", "3"), ("tawpipe", "3x1"), ("ddp", "3")):
            expected += [(*case, groups, "1", dtype, "serial") for groups in ("3", "1+2")]
    assert found[0] == expected[0] and sorted(found) == sorted(expected)
    for row, case in zip(found, said["cases"], strict=True):
        check_case(row, case)
    least = max(said["cases"], key=lambda case: case["limit_share"])
    (room,) = [line for line in lines if line.startswith("# closest to its limit")]
    assert f"{least['settings']['schedule']}, " in room
    assert f", {least['settings']['dtype']}: {least['closest']} against " in room
    assert f", {100 * least['limit_share']:.2g} % of it: " in room


def check_case(row, case):
    """The row of a case names its settings, and its errors are possible."""
    asked = case["settings"]
    ranks, replicas = asked["ranks"], asked["replicas"]
    shape = str(ranks) if replicas == 1 else f"{replicas}x{ranks // replicas}"
    against = case["against"].removesuffix(" reference")
    said = (asked["schedule"], shape, asked["groups"], str(asked["context"]), asked["dtype"])
    assert row == (*said, against)
    assert 0 < case["limit_share"] < 1
    # in bf16 all round to the right number
    assert (case["weight_error"] > 0) == (asked["dtype"] == "fp32")


def test_an_unsuited_schedule_is_not_judged():
    """The verdict says so; alone it is refused."""
    changes = {"ranks": 2, "groups": 1, "replicas": 2}
    reason = "left out 1 combination: replicas: ddp has no replicas; use replicas = 1"
    text = output_of(verify(2, schedule="ddp,tawpipe", **changes))
    assert f"\n# {reason}\n" in text and f"\n# not judged: {reason}\n" in text
    assert "\nRESULT: VALID: 1 case agrees " in text
    refused(verify(2, schedule="ddp", **changes), "ddp has no replicas; use replicas = 1")
    words = settings(schedule="ddp,tawpipe", **changes)
    ran = on_ranks(2, "run", "job.toml", *words, "-o", "job.h5")
    assert ran.returncode == 0
    assert ran.stdout.count(f"# {reason}\n") == 2, "before the first case and before the verdict"


def test_a_repeated_step_has_the_same_bits():
    """In every case; no reference is made."""
    changes = {"ranks": 2, "groups": 1, "schedule": "ddp,tawpipe"}
    text = output_of(verify(2, "--repeat", "3", **changes))
    said = json.loads(output_of(verify(2, "--repeat", "3", "--json", **changes)))
    assert said["valid"] and text.endswith(f"RESULT: {said['verdict']}\n")
    assert said["verdict"] == (
        "VALID: 2 cases, each step 3 times: losses, gradients and weights have the same bits on "
        "every rank"
    )
    assert "reference" not in text and text.count(": same bits\n") == 2
    assert [case["settings"]["schedule"] for case in said["cases"]] == ["ddp", "tawpipe"]
    assert all(case["passes"] and case["deviations"] == [] for case in said["cases"])
    assert verify(2, "--repeat", "1", **changes).returncode == 2


def test_a_late_rank_is_waited_for():
    """It comes to MPI later than the watchdog waits in a step, as on a crowded machine."""
    own = [MINITAW, "verify", "job.toml", *settings(ranks=2, groups=1), "--watchdog", "1"]
    late = ["sh", "-c", 'sleep 2.5; exec "$@"', "sh", *own]
    done = call(MPIEXEC, "-n", 1, *own, ":", "-n", 1, *late)
    assert "does not answer" not in done.stderr and " float64 reference " in done.stdout, told(done)


@pytest.mark.skipif(not FAKE_HOST.exists(), reason="products are not those of BLAS")
@pytest.mark.parametrize(
    "ranks, rank, judged",
    [(2, 1, ["ok", "WRONG"]), (2, 0, ["WRONG", "WRONG"]), (1, 0, ["WRONG", "ok"])],
)
def test_products_that_are_one_percent_too_large_are_found(ranks, rank, judged):
    """On one rank, by run and by verify, whose exit codes say so. On one rank alone both err
    alike, but for the float64 reference."""
    variables = [
        f"LD_PRELOAD={FAKE_HOST}",
        f"FAULTY_RANK={rank}",
        f"ASAN_OPTIONS={os.environ.get('ASAN_OPTIONS', '')}:verify_asan_link_order=0",
    ]
    words = ["job.toml", *settings(ranks=ranks, groups=1, schedule="ddp")]
    if ranks == 2:
        done = on_ranks(2, "run", *words, "-o", "job.h5", variables=variables)
        assert done.returncode == 1 and "RESULT: INVALID: 1 of 1 case," in done.stdout, told(done)
        (row,) = rows("job.h5")
        assert row["status"] == "wrong" and row["gradient_error"] > 1e-3
        assert "differs from the serial reference" in row["reason"]
    done = on_ranks(ranks, "verify", *words, variables=variables)
    said = on_ranks(ranks, "verify", *words, "--json", variables=variables)
    assert done.returncode == said.returncode == 1, told(done)
    check_verdicts(done.stdout, json.loads(said.stdout), judged)


def check_verdicts(text, said, judged):
    """What verify says of the serial training and of a case, one of which is wrong."""
    first = "serial" if judged[0] == "WRONG" else "ddp"
    wrong = judged.count("WRONG")
    assert f"RESULT: INVALID: {wrong} of 2 comparisons differ, first {first}, " in text
    assert ("# next: minitaw_kernels --verify" in text) == (first == "serial")
    assert not said["valid"]
    lines = [line for line in text.splitlines() if "reference" in line and line[0] not in "R#"]
    for line, case, result in zip(lines, said["cases"], judged, strict=True):
        steps = (case["first_step"], case["later_steps"])
        errors = [step[name] for step in steps for name in ("loss_error", "gradient_error")]
        errors.append(case["weight_error"])
        fields = line.split("reference")[1].split()
        assert [*map(float, fields[:5])] == pytest.approx(errors, rel=0.06)
        assert fields[5].rstrip(":") == result and case["passes"] == (result == "ok")
        assert case["failure"] == line.partition("WRONG: ")[2]
        assert result == "ok" or len({*fields[:5]}) == 5
