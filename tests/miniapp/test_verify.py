# SPDX-License-Identifier: BSD-3-Clause
"""verify under mpiexec: it says what it found, of whom, and what it did not judge; run finds the
same."""

import json
import os
import pathlib
import re

import pytest
from programs import (
    BUILD,
    JSON_HEAD,
    MINITAW,
    MPIEXEC,
    REPOSITORY,
    SMALL,
    call,
    on_ranks,
    output_of,
    rows,
    says,
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
    pathlib.Path("job.toml").write_text(DECK)


def verified(ranks, *options, **changes):
    """What verify says, as a text and in JSON."""
    words = ("verify", "job.toml", *settings(ranks=ranks, **changes), *options)
    text = output_of(on_ranks(ranks, *words))
    said = json.loads(output_of(on_ranks(ranks, *words, "--json")))
    assert [*said][:4] == [*JSON_HEAD, "verdict"] and said["valid"]
    assert text.endswith(f"\nRESULT: {said['verdict']}\n")
    return text, said


def test_every_case_has_a_line_and_an_object():
    """With its settings; the serial training of each model comes first."""
    text, said = verified(3, groups="1+2", replicas="1,3", dtype="fp32,bf16")
    assert said["verdict"] == (
        "VALID: 6 cases agree with the serial training, 2 runs of it with the float64 reference"
    )
    head, _, rest = text.partition(" against ")
    note = "left out 2 combinations: replicas: ddp has no replicas; use replicas = 1"
    says(head, f"# {said['program']}\n# rank 0: node 0, ", "# seq           = 9 token", f"# {note}")
    says(rest, f"# not judged: {note}\n")
    assert said["notes"] == [note]

    found = re.findall(r"(?m)^ +(\S+) +(\S+) +(\S+) +1 +(\S+) +(\S+ reference) .* ok$", text)
    cases = [("tawpipe", "3", "1+2"), ("tawpipe", "3x1", "1+2"), ("ddp", "3", "1+2")]
    expected = [
        (*case, dtype) for case in [("serial", "1", "1"), *cases] for dtype in ("fp32", "bf16")
    ]
    assert sorted(row[:4] for row in found) == sorted(expected)
    assert [row[4] for row in found] == ["float64 reference", *["serial reference"] * 3] * 2
    for (schedule, _, _, dtype, against), case in zip(found, said["cases"], strict=True):
        asked = case["settings"]
        assert (asked["schedule"], asked["dtype"], case["against"]) == (schedule, dtype, against)
        # in bf16 all round to the right number
        assert 0 < case["limit_share"] < 1 and (case["weight_error"] > 0) == (dtype == "fp32")
    least = max(said["cases"], key=lambda case: case["limit_share"])
    room = f" {100 * least['limit_share']:.2g} % of it: {least['settings']['schedule']}, "
    says(rest, f"# closest to its limit for rounding,{room}", f": {least['closest']} against ")


def test_a_repeated_step_has_the_same_bits():
    """In every case; no reference is made."""
    text, said = verified(2, "--repeat", "3", groups=1, schedule="ddp,tawpipe")
    says(said["verdict"], "VALID: 2 cases, each step 3 times: ", " the same bits on every rank")
    assert "reference" not in text and text.count(": same bits\n") == 2
    assert [case["settings"]["schedule"] for case in said["cases"]] == ["ddp", "tawpipe"]
    assert all(case["passes"] and case["deviations"] == [] for case in said["cases"])


def test_a_real_model_runs_at_a_smaller_scale():
    """Qwen3 0.6B with an eighth of its width: heads that are wider together than the hidden state,
    and one matrix for embedding and head."""
    smaller = {"layers": 3, "hidden": 128, "heads": 2, "kv_heads": 1, "ffn": 384, "vocab": 1000}
    less = settings(**smaller, seq=26, dtype="fp32", steps=2)
    said = json.loads(
        output_of(
            on_ranks(2, "verify", REPOSITORY / "inputs/models/qwen3-0.6b.toml", *less, "--json")
        )
    )
    assert said["valid"] and said["verdict"].startswith("VALID: 4 cases agree with the serial ")
    for case in said["cases"]:
        asked = case["settings"]
        assert (asked["head_dim"], asked["tied"]) == (128, "true")
        # Of a block 2 x 128 columns each of queries and output, 128 of keys and of values.
        block = 128 * (2 * 2 * 128 + 2 * 128 + 3 * 384) + 2 * 128
        assert asked["parameters"] == 3 * block + 1000 * 128 + 128


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
        "OMP_NUM_THREADS=1",
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
    first, wrong = ("serial", "ddp")[judged.index("WRONG")], judged.count("WRONG")
    says(text, f"RESULT: INVALID: {wrong} of 2 comparisons differ, first {first}, ")
    assert ("# next: minitaw_kernels --verify" in text) == (first == "serial")
    assert not said["valid"]
    for case, result in zip(said["cases"], judged, strict=True):
        errors = {case["weight_error"], *case["first_step"].values(), *case["later_steps"].values()}
        assert case["passes"] == (result == "ok") != (f" WRONG: {case['failure']}\n" in text)
        assert result == "ok" or len(errors) == 5
