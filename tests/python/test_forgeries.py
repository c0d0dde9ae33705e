# SPDX-License-Identifier: BSD-3-Clause
"""Forgeries of a real result, each as somebody would make it who knows the file: a change, the
summary repaired, a new seal. What contradicts it must be named, and nothing else."""

import itertools
import json
from pathlib import Path

import h5py
import numpy
import pytest
from minitaw import evidence, record, sealed
from programs import on_ranks, output_of, refuses, settings
from samples import replace, resealed

DECK = """
layers = 2
hidden = 64
heads = 4
head_dim = 24
ffn = 96
ranks = 2
seq = 128
micro_batches = 4
steps = 3
warmup = 1
repeats = 2
"""
HALVED = ["seconds", "time/compute", "time/exposed_by_kind", "time/idle"]


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Two runs of a deck, with their logs, and one in another precision."""
    folder = tmp_path_factory.mktemp("real")
    (folder / "deck.toml").write_text('schedule = ["fsdp", "ddp"]\n' + DECK)
    for name, more in ("a", {}), ("b", {}), ("bf16", dict(dtype="bf16", seq=16, head_dim=16)):
        words = ("run", folder / "deck.toml", "-o", folder / f"{name}.h5")
        done = on_ranks(2, *words, *settings(**more))
        (folder / f"{name}.txt").write_text(output_of(done))
    return folder


@pytest.fixture
def as_short(real, monkeypatch):
    """Steps are short: no more may lie between them, and between begins, than in this run."""
    between, begins = [], []
    for _, some in record.load(real / "a.h5").groupby("case"):
        runs = record.rows_of(some)
        samples = [record.samples(run) for run in runs]
        windows = sum(evidence.clocks_of(run)[1, 0] - evidence.clocks_of(run)[0, 0] for run in runs)
        accounted = sum(one[run.accounted_step] for one, run in zip(samples, runs))
        between.append((windows - sum(map(sum, samples))) / (some.steps.sum() + len(some)))
        begins.append((some.accounted_s.sum() - accounted) / len(some))
    monkeypatch.setattr(evidence, "BETWEEN_SHARED", max(between))
    monkeypatch.setattr(evidence, "BETWEEN_BEGINS", max(begins))
    monkeypatch.setattr(evidence, "SET", 0.001)
    assert sentences(real / "a.h5") == []


def sentences(path, **more):
    return evidence.contradictions(record.load(path), **more)


def every(file):
    return [run for run in file["runs"].values() if isinstance(run, h5py.Group)]


def columns(file):
    return record.columns_of(file["runs"])


def repair(file):
    """The summary of each run, as its samples have it."""
    for number, run in enumerate(every(file)):
        seconds = run["seconds"][:].max(axis=1)
        q1, median, q3 = numpy.quantile(seconds, [0.25, 0.5, 0.75])
        column = file["runs"]
        for name in ("tokens_per_s", "tokens_per_s_rank", "tflops_causal", "tflops_rank"):
            column[name][number] *= column["median_s"][number] / median
        column["median_s"][number], column["q1_s"][number] = median, q1
        column["q3_s"][number], column["spread"][number] = q3, (q3 - q1) / median
        column["verdict"][number] = "VALID"
    file["runs"].attrs["verdict"] = "VALID"


def halved_samples(file, _):
    for run in every(file):
        run["seconds"][:] /= 2


def halved_steps(file, _):
    """All but the windows."""
    for run, name in itertools.product(every(file), HALVED):
        run[name][:] /= 2
    file["runs/accounted_s"][:] /= 2


def slower_clock(file, _):
    halved_steps(file, _)
    for run in every(file):
        clocks = run["clocks"][:]
        clocks[1, :2] = clocks[0, :2] + (clocks[1, :2] - clocks[0, :2]) / 2
        run["clocks"][:] = clocks
    ends = [numpy.datetime64(round(1000 * run["clocks"][1, 1]), "ms") for run in every(file)]
    file["runs/ended"][:] = [f"{end}Z" for end in ends]


def fewer_steps(file, _):
    for run in every(file):
        replace(run, "seconds", numpy.tile(run["seconds"][:], (2, 1)))
        losses = run["losses"][:]
        replace(run, "losses", numpy.concatenate([losses, losses[-3:]]))
    for name in ("steps", "samples"):
        file["runs"][name][:] *= 2


def other_dtype(file, _):
    """What the run says of itself, in texts and in the deck."""
    for name, column in columns(file).items():
        if record.is_text(column):
            column[:] = [text.replace("bf16", "fp32") for text in column.asstr()[:]]
    session = file["sessions/0000"]
    cases = [text.replace("bf16", "fp32") for text in session["cases"].asstr()[:]]
    session["cases"][:] = cases
    deck = session["deck"].asstr()[()].replace("bf16", "fp32")
    replace(session, "deck", deck)


def case_left_out(file, _):
    """The last one, of two repetitions."""
    runs = file["runs"]
    for name, column in [*columns(file).items()]:
        replace(runs, name, column[:-2])
    for name in ("0002", "0003"):
        del runs[name]


def of_two_runs(file, other):
    """The second repetition of the first case comes from another run."""
    for name, column in columns(file).items():
        if name != "session":
            column[1] = other["runs"][name][1]
    del file["runs/0001"]
    other.copy("runs/0001", file["runs"])


FORGERIES = [
    (halved_samples, "a.h5", "its accounted steps take"),
    (halved_samples, "a.h5", "but its timed steps last"),
    (halved_steps, "a.h5", "but its timed steps last"),
    (slower_clock, "a.h5", "by the processor's counter"),
    (fewer_steps, "a.h5", "of its timed steps take exactly as long as another one"),
    (fewer_steps, "a.h5", "losses are exactly those of another step"),
    (other_dtype, "bf16.h5", "of the optimiser is 12 bytes a parameter, fp32 takes 8"),
    (case_left_out, "a.h5", "asked for 1 case that it lacks"),
    (of_two_runs, "a.h5", "begins before what comes before it has ended"),
]


@pytest.mark.parametrize("change, source, says", FORGERIES)
@pytest.mark.usefixtures("as_short")
def test_a_forgery_is_named(real, change, source, says):
    image = (real / source).read_bytes()[sealed.SEAL_BYTES :]
    path, other = Path("forged.h5"), Path("other.h5")
    path.write_bytes(image)
    other.write_bytes((real / "b.h5").read_bytes()[sealed.SEAL_BYTES :])
    with h5py.File(path, "r+") as file, h5py.File(other) as second:
        change(file, second)
        repair(file)
    path.write_bytes(resealed(path.read_bytes()))
    assert any(says in sentence for sentence in sentences(path)), sentences(path)


@pytest.mark.parametrize("name", ["a", "b", "bf16"])
def test_an_honest_result_contradicts_nothing(real, name):
    lines = evidence.lines_of([real / f"{name}.txt"])
    assert sentences(real / f"{name}.h5", lines=lines) == []


def test_a_log_of_another_run_contradicts(real):
    """Two runs never take equally long; one that is not in the file was left out."""
    lines = evidence.lines_of([real / "b.txt"])
    found = sentences(real / "a.h5", lines=lines | {("7", 0): "0.5"})
    assert any("in the log" in sentence for sentence in found)
    assert "the log has case 7, repetition 0, the file has not" in found
    del lines["1", 1]
    assert any("has no line in the log" in one for one in sentences(real / "a.h5", lines=lines))


def screened(**highest):
    quantities = [dict(name=name.replace("_", " "), highest=most) for name, most in highest.items()]
    content = dict(quantities=quantities, adapters=1, verdict="CLEAN")
    Path("s.json").write_text(json.dumps(content))
    return evidence.screening_of("s.json")


def test_no_step_is_faster_than_the_machine(real):
    """A run of two nodes sends its bytes over the link between them."""
    runs = record.load(real / "a.h5")
    runs.file[0].sessions[0]["nodes"] = [0, 1]

    def found(**highest):
        return evidence.contradictions(runs, screened(**highest))

    assert found(matrix_product=1e15, rate_between_nodes=1e12) == []
    (first, *_) = found(matrix_product=1e6)
    assert "more than a matrix product on this machine allows, 1.2e+06" in first
    (first, *_) = found(rate_between_nodes=1e3)
    assert "too short for" in first


REFUSED = """
a.h5 --log a.h5: has no line of a table
a.h5 --log none.txt: none.txt cannot be read
a.h5 --screening empty.json: empty.json is no output of screen --json
"""


def test_what_is_no_log_or_screening_is_refused(real):
    Path("a.h5").write_bytes((real / "a.h5").read_bytes())
    Path("empty.json").write_text("{}")
    refuses("check-rules", REFUSED)
