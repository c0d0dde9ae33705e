# SPDX-License-Identifier: BSD-3-Clause
"""What the run rules demand of a result, rule by rule, on results as runs of the shipped decks
would leave them; and archives of results, sound and foreign ones."""

import io
import itertools
import json
import shutil
import tarfile
import tomllib
from pathlib import Path
from unittest import mock

import numpy
import pandas
import pytest
import samples
from minitaw import archive, evidence, ratings
from minitaw import check_rules as subject
from minitaw.numbers import cell_text
from programs import SAMPLE, output_of, refused, refuses, script

BEGUN = "2026-11-24T09:00:00Z"
SESSION = dict(
    git_hash="0123456789ab",
    command="minitaw run",
    deck="layers = 1",
    devices=["cpu"],
    started=BEGUN,
    nodes=numpy.zeros(10000),
    cores=[*map(str, range(10000))],
)


def consistent(row, begin):
    """With what the program would measure beside the samples of a run that begins so many seconds
    after its session."""
    seconds, ranks = row["seconds"], row["ranks"]
    length, real = seconds[0, 0], pandas.Timestamp(BEGUN).timestamp() + begin
    begun, ended = numpy.array([[begin, real, begin]]) + [[0], [seconds.sum()]]
    parameters = evidence.parameters_of(pandas.Series(row))
    optimiser = numpy.full((ranks, 3), evidence.OPTIMISER[row["dtype"]] * parameters // ranks + 1)
    tokens = row["steps"] * row["micro_batch"] * row["micro_batches"] * row["seq"]
    copies = ranks if row["schedule"] == "ddp" else row["replicas"]
    said = {name: f"{pandas.Timestamp(clocks[1], unit='s')}Z" for name, clocks in
            (("begun", begun), ("ended", ended))}  # fmt: skip
    return row | said | {
        "identity": " ".join(f"{name}={cell_text(row[name])}" for name in evidence.SAID),
        "parameters": parameters,
        "first_loss": 6.0,
        "last_loss": 5.0,
        "bytes_inside": row["bytes/counted"].sum(),
        "bytes_between": 0,
        "peak": numpy.nan,
        "energy": row.get("energy", numpy.nan),
        "energy_per_token": row.get("energy", numpy.nan) / tokens,
        "accounted_step": 0,
        "accounted_s": length,
        "clocks": numpy.array([begun, ended]),
        "losses": numpy.linspace(6, 5, row["warmup"] + row["steps"]),
        "memory/planned": optimiser * copies,
        "memory/measured": optimiser * copies,
        "time/compute": numpy.full(ranks, length),
        "time/exposed_by_kind": numpy.zeros((ranks, 1)),
        "time/idle": numpy.zeros(ranks),
    }  # fmt: skip


def result_of(words):
    """Of two schedules of a shipped deck, all valid, the median of the first case 2 s, of the
    second 3 s, and so on; with changes, in TOML, of all cases, of the first, of the second, and of
    a later session. `noise`: how far samples lie around their median; `lost`: bytes that were not
    counted; `says`: the verdict of the file."""
    name, *words = words.split()
    deck = dict(
        ranks=16,
        replicas=1,
        recompute="block",
        status="ok",
        verdict="VALID",
        noise=1e-6,
        lost=0,
        says="VALID",
        later={},
        session={},
    )
    deck |= subject.read_size(name) | {"groups": "16"} | tomllib.loads("\n".join(words))
    deck.setdefault("micro_batches", deck.get("micro_batches_per_rank", 0) * deck["ranks"])
    runs = []
    every = itertools.product(deck["schedule"][:2], deck["seq"])
    for case, (schedule, seq) in enumerate(every):
        row = {"median_s": 2.0 + case} | deck | dict(case=case, schedule=schedule, seq=seq)
        row |= deck.get({0: "first", 1: "second"}.get(case), {})
        row |= {f"bytes/{name}": numpy.zeros(4) for name in ("from", "to", "kind")}
        row["bytes/planned"] = numpy.arange(4)
        row["bytes/counted"] = numpy.arange(4) - row["lost"]
        for repetition in range(row["repeats"]):
            around = 1 + row["noise"] * (1 + repetition / 1000) * numpy.linspace(
                -1, 1, row["steps"]
            )
            row["seconds"] = row["median_s"] * around[:, None]
            begin = runs[-1]["clocks"][1, 0] + 1 if runs else 0
            runs.append(consistent(row | dict(repetition=repetition), begin))
    asked = {"cases": list(dict.fromkeys(run["identity"] for run in runs))}
    later = {"started": runs[-1]["ended"]} | asked | deck["later"]
    sessions = [SESSION | asked | deck["session"], SESSION | later]
    return samples.in_memory(*runs, sessions=sessions, verdict=deck["says"])


def official(words):
    return subject.official(result_of(words))


def broken(result, *how):
    return subject.official(result, *how).reasons


@pytest.mark.parametrize("name, lengths", zip(subject.NAMES, (3, 3, 3, 4, 3, 2), strict=True))
def test_shipped_decks_are_official(name, lengths):
    found = official(name)
    assert f"official: yes ({name}, baseline)\n" in found.text()
    assert len(found.bests) == lengths


@pytest.mark.parametrize(
    "words",
    [
        "medium micro_batch=2 micro_batches=16 recompute='none'",
        "medium replicas=2 groups='4+4' steps=30 repeats=9 warmup=4",
        "8b ranks=2560 replicas=320",
        "small median_s=0.25",  # which needs no time
    ],
)
def test_what_is_free_may_change(words):
    assert official(words).reasons == []


BROKEN = """
small dtype='bf16': case 0: dtype is "bf16", small has "fp32"
small learning_rate=0.1: case 0: learning_rate
small data='a.txt': case 0: data
small context=2: case 0: context
medium steps=2: steps = 2, medium needs 3
large warmup=0: warmup = 0
large seq=[1024,4096,24576,32768]: seq = 32768 is no length of large
large seq=[4096,24576]: lengths 1024, 4096, 24576
large micro_batches=80: 80 sequences in a step, large has 160
medium median_s=0.25: 3.75 s of timed steps, 10 are needed
8b ranks=10: 10 ranks, 8b takes multiples of 4
8b micro_batches=128: 128 sequences in a step, 8b has 64
8b first.ranks=8: 8b takes a file for each
small heads=8: none of small, medium, large, 8b, 70b, 405b
small second.heads=8: case 1: its model is not that of small
small says='INVALID': the file says INVALID
small status='wrong': case 0: INVALID: wrong
small first.lost=1: case 0: INVALID: the bytes counted are not those planned
small first.steps=2: case 0: INVALID: 2 timed steps, 3 are needed
small first.noise=0.3: case 0: VALID (noisy: quartiles 30 % of the median apart)
small first.noise=0.3: run 0 says VALID, step 2 s, but its samples and bytes say
small later.git_hash='0123456789ab-dirty': differ from their commit
small later.git_hash='unknown': not known
small later.git_hash='': not known
small later.git_hash='0a9876543210': different commits
small later.devices='': not complete
small later.deck='': not complete
small later.command='': not complete
"""


@pytest.mark.parametrize("line", BROKEN.strip().split("\n"))
def test_a_broken_rule_is_named(line):
    """Verdicts follow from samples and bytes, whatever the file says."""
    words, _, says = line.partition(": ")
    assert any(says in one for one in official(words).reasons)


def test_all_repetitions_must_be_there():
    result = result_of("small")
    assert broken(result[:0]) == ["no case was run"]
    assert broken(result[1:]) == [
        "case 0: INVALID: 4 of 5 repetitions",
        "the file says VALID, but not all of its cases are valid",
    ]


# small has lengths 128, 256 and 512 with 8 sequences a step.
RATE = (1024 / 2 * 2048 / 3 * 4096 / 4) ** (1 / 3)


def test_medians_follow_from_samples():
    faster = result_of("small")
    faster.loc[3, "median_s"] /= 2
    says = "run 3 says VALID, step 1 s, but its samples and bytes say VALID, step 2 s"
    assert broken(faster) == [says]
    assert subject.official(faster).rate == pytest.approx(RATE, rel=1e-9)


def test_many_noisy_cases_do_not_hide_a_contradiction():
    drift = result_of("small")
    for run in range(10):
        drift.file[0].content[run]["seconds"] = numpy.full((5, 1), 2.0 + run % 5)
        drift.loc[run, "median_s"] = 2.0 + run % 5
    first, *others = broken(drift)
    assert first == "run 0: 4 of its timed steps take exactly as long as another one on all ranks"
    noise = "case 0: VALID (noisy: quartiles 50 % of the median apart); noisy, too: 1 case (1)"
    assert [one for one in others if "noisy" in one] == [noise]


def test_tiers_go_with_commits():
    other = "ba9876543210"
    result = result_of("small")
    assert broken(result, "baseline", SESSION["git_hash"] + "cdef") == []
    assert broken(result, "ported", other) == []
    left = broken(result, "baseline", other)
    kept = broken(result, "ported", SESSION["git_hash"])
    assert left == ["tier baseline, but its commit is not the published one"]
    assert kept == ["tier ported, but its commit is the published one"]


def test_a_submission_ends_within_a_day():
    result = result_of("small").assign(begun="2026-11-24T09:00:00Z", ended="")
    result.loc[1, "begun"] = "2026-11-24T08:00:00Z"
    result.loc[0, "ended"] = "2026-11-25T07:59:59Z"
    says = "24 hours from the first timed step to the last, at most 24 are allowed"
    assert says not in broken(result)
    result.loc[0, "ended"] = "2026-11-25T08:00:01.5+00:00"
    assert says in broken(result)


def test_every_length_weighs_the_same():
    """A length that takes half the time raises the rate by the cube root of two."""
    whole = official("small")
    assert whole.rate == pytest.approx(RATE, rel=1e-9)
    assert "# S = 256: 682.667 tokens/s, 2048 tokens in 3 s (tawpipe)\n" in whole.text()
    assert "rate of small: 710.002 tokens/s, 20 million tokens in 28168.9 s\n" in whole.text()
    for change in ("first.median_s=1.0", "second.median_s=1.5"):
        assert official(f"small {change}").rate == pytest.approx(RATE * 2 ** (1 / 3), rel=1e-9)


def test_the_fastest_valid_case_of_a_length_counts():
    """Here the second schedule takes the place of the first, in 5 s."""
    for worse, kind in ("median_s=7.0", "rate"), ("status='error'", "estimate"):
        found = official(f"small first.{worse}")
        assert found.rate == pytest.approx(RATE * (2 / 5) ** (1 / 3), rel=1e-9)
        assert found.text().startswith(f"{kind} of small: ")


def test_a_screening_that_is_not_clean_is_told():
    for verdict, told in ("FOUND: 1 culprit", True), ("CLEAN: 3 rounds", False):
        text = subject.official(result_of("small"), screening={"verdict": verdict}).text()
        assert (f"# the screening is not clean: {verdict}\n" in text) == told


def test_the_scope_is_told():
    """Which cases, of which commit, and what no program can see; of many broken rules, ten."""
    found = official("small repeats=4 warmup=0 first.seed=3")
    rules = [reason for reason in found.reasons if reason.startswith("case 0: ")]
    assert rules[:2] == [
        'case 0: seed is "3", small has "1"',
        "case 0: repeats = 4, small needs 5",
    ]
    lines = found.text().splitlines()
    says = "says VALID, step 2 s, but its samples and bytes say VALID (no warm-up), step 2 s"
    assert lines[1] == f"official: no: run 0 {says}"
    assert lines[2].startswith("# also: run 1 says VALID")
    assert lines[11].startswith("# and ")
    assert lines[12].startswith("# judged: 6 cases of 2 sessions, commit 0123456789ab")


# Evidence: what the runs of an official result contradict, each in its own sentence.

CONTRADICTIONS = """
clocks=numpy.zeros((0, 3)): run 0: it has no clocks of its timed steps
clocks[1,1]+=0.02: last 10 s by the monotonic clock, 10.02 s by the clock of the day
clocks[1,2]*=0.998: last 10 s by the monotonic clock, 9.98 s by the processor's counter
clocks[1]-=0.01: its samples are 10 s together, but its timed steps last 9.99 s by its clocks
clocks[1]+=9: case 0: its samples are 50 s together, but its timed steps last 59 s by its clocks
clocks[:,1]+=9: begun is '2026-11-24 09:00:00Z', the clock of the day says otherwise
clocks[:,0]+=9: the clocks of session 0 are not those of one start of one machine
time/idle[1]+=0.1: computing, exposed and idle time of a rank are 2.1 s together, in a step of 2 s
losses[2]=losses[1]: 1 of its 7 losses are exactly those of another step
losses=losses[1:]: it has 5 samples and 6 losses, its settings ask for 5 and 7
losses[3]=numpy.nan: one of its losses is no number
losses[0]+=1: first_loss is 6, its arrays and settings say 7
losses[0]+=1: run 15 begins with the loss 6, run 0 with 7
bytes/counted*=2: bytes_inside is 6, its arrays and settings say 12
clocks[1,2]=numpy.inf: run 0: it has no clocks of its timed steps
memory/planned*=2: memory/planned of the optimiser is 16 bytes a parameter, fp32 takes 8
memory/measured*=2: memory/measured of the optimiser is 16 bytes a parameter, fp32 takes 8
seconds[1]=seconds[0]: 1 of its timed steps take exactly as long as another one on all ranks
"""


@pytest.mark.parametrize("line", CONTRADICTIONS.strip().split("\n"))
def test_a_contradiction_is_named(line):
    """Of the first run, whose array is changed so."""
    change, _, says = line.partition(": ")
    names = ("clocks", "time/idle", "losses", "memory/planned", "memory/measured", "seconds",
             "bytes/counted")  # fmt: skip
    name = next(filter(change.startswith, names))
    result = result_of("small groups='4+4+4+4'")
    arrays = result.file[0].content[0]
    scope = {"numpy": numpy, "array": arrays[name].astype(float)}
    exec(change.replace(name, "array"), scope)
    arrays[name] = scope["array"]
    assert any(says in one for one in broken(result)), broken(result)


ROWS = """
identity='seq=9': 128 tokens) is of a case that its session did not ask for
peak=1e-9: FLOP/s a rank are more than its peak allows, 1000
accounted_s=2.2: case 0: its accounted steps take
accounted_s=1.9: step 0 takes 1.9 s by its actions, 2 s by its sample
accounted_step=-1: run 0: it says of none of its timed steps what its time went into
seq=512: run 0: seq is 512, in its identity 128
replicas=2: run 0: replicas is 2, in its identity 1
parameters=5: run 0: parameters is 5, its arrays and settings say 1517696
energy=500.0: run 0: energy_per_token is 0.1953125, its arrays and settings say 0.09765625
energy=500.0: case 0: its repetitions take 50 to 100 W
"""


@pytest.mark.parametrize("line", ROWS.strip().split("\n"))
def test_a_row_that_contradicts_is_named(line):
    change, _, says = line.partition(": ")
    name, _, value = change.partition("=")
    result = result_of("small energy=1000.0")
    result.loc[0 if name != "accounted_s" else range(5), name] = eval(value)
    assert any(says in one for one in broken(result)), broken(result)


def test_runs_are_in_the_order_of_the_session():
    """Cases 0 and 1 the other way round; --interleave has any order."""
    says = "the runs of session 0 are not in the order in which they were asked for"
    for command, count in ("minitaw run", 1), ("minitaw run --interleave", 0):
        result = result_of("small")
        result.file[0].sessions[0]["command"] = command
        cases = result.file[0].sessions[0]["cases"]
        cases[:2] = cases[1::-1]
        assert broken(result) == [says] * count


def test_a_repetition_is_no_copy_of_another():
    result = result_of("small")
    says = "case 0: one of its repetitions takes exactly as long as another one on all ranks"
    first, second, *_ = result.file[0].content
    second["seconds"] = first["seconds"]
    assert says not in broken(result)
    second["time/compute"] = first["time/compute"]
    assert says in broken(result)


def test_a_case_may_only_be_missing_while_a_file_is_unfinished():
    """One of a later session."""
    for verdict, count in ("VALID", 1), ("INVALID: unfinished cases: 1", 0):
        result = result_of("small").iloc[:-5]
        result.file[0].verdict = verdict
        assert sum("asked for 1 case that it lacks" in one for one in broken(result)) == count


def test_sessions_follow_one_another():
    result = result_of("small")
    result.loc[10:, "session"] = 1
    assert "session 1 starts before an earlier one has ended" not in broken(result)
    result.file[0].sessions[1]["started"] = BEGUN
    assert "session 1 starts before an earlier one has ended" in broken(result)


# The network figure: 64 nodes of four devices, of which eight make a replica.


def on_nodes(words, devices):
    groups = "+".join([str(devices)] * (256 // devices))
    result = result_of(f"{words} groups='{groups}'")
    for session in result.file[0].sessions:
        session["nodes"] = numpy.arange(256) // devices
    return result


def test_the_network_figure_is_of_one_case():
    """256 x 4 sequences of 1024 tokens in 2 s."""
    words = "8b ranks=256 replicas=8 recompute='block' first.schedule='fsdp:hierarchical=on'"
    result = on_nodes(words, devices=4)
    found = subject.official(result)
    says = "524288 tokens/s (S = 1024, fsdp:hierarchical=on, 8 replicas)"
    assert f"network figure of 8b: {says}\n" in found.text()
    assert found.reasons == []
    for name, value in dict(replicas=16, recompute="none", seq=4096, schedule="fsdp", micro_batch=2,
                            groups="256", status="error").items():  # fmt: skip
        other = result.copy()
        other.loc[other.case == 0, name] = value
        assert subject.official(other).network is None
        assert any("the case of the network figure is not here" in one for one in broken(other))
    assert subject.official(result_of("8b")).network is None
    # 405b has FSDP alone, of which one replica takes any number of ranks.
    wide = on_nodes("405b ranks=256 recompute='block' schedule=['fsdp:hierarchical=on']", devices=8)
    for replicas in (1, 2, 4):
        known = subject.official(wide.assign(replicas=replicas)).network is not None
        assert known == (replicas == 1)


# Offers beside one another.

RESULTS = {
    "slow.h5": "small energy=1024.0",
    "fast.h5": "small median_s=1.0 energy=1024.0",
    "other.h5": "medium",
    "bad.h5": "small seed=2",
}


def compared(words, code):
    with mock.patch.object(ratings, "load", lambda path: result_of(RESULTS[path])):
        return output_of(script("compare", "--ratings", *words.split()), code)


def test_offers_of_a_size_are_ranked():
    said = json.loads(compared("slow.h5 other.h5 fast.h5 --json", code=0))["ratings"]
    assert [(row["rank"], row["file"]) for row in said] == [
        (1, "fast.h5"),
        (2, "slow.h5"),
        (1, "other.h5"),
    ]
    assert said[1]["energy"] == pytest.approx((1024 / 5120 + 1024 / 10240 + 1024 / 20480) / 3)
    assert said[2]["energy"] is None and said[2]["network"] is None


def test_one_that_is_not_official_says_why():
    said = compared("slow.h5 bad.h5", code=1)
    assert 'no: case 0: seed is "2", small has "1"' in said
    assert said.count("yes") == 1


# Archives.


def checked(words, code=0):
    return output_of(script("check-rules", *words.split()), code)


def test_an_archive_has_the_records_and_the_verdict():
    """One that is official and one that is not."""
    for name in ("a.h5", "b.h5"):
        shutil.copy(SAMPLE, name)
    results = {"a.h5": result_of("small"), "b.h5": result_of("medium seed=2")}
    with mock.patch.object(subject, "load", lambda path, _: results[Path(path).name]):
        said = checked("a.h5 b.h5 --archive both.tar.gz", code=1)
        assert checked("both.tar.gz", code=1) == said
        one = checked("a.h5 --tier ported --published ba9876543210")
    assert "official: yes (small, ported)\n" in one
    assert said.startswith("# a.h5\nrate of small: ")
    assert "\n# b.h5\nestimate of medium: " in said
    with tarfile.open("both.tar.gz") as packed:
        content = {name: packed.extractfile(name).read() for name in packed.getnames()}
    sample = SAMPLE.read_bytes()
    assert content == {"verdict.txt": said.encode(), "a.h5": sample, "b.h5": sample}


def test_what_somebody_has_written_into_a_verdict_does_not_count():
    packed = archive.pack({"a.h5": SAMPLE.read_bytes()}, "official: yes\n")
    Path("others.tar.gz").write_bytes(packed)
    assert checked("others.tar.gz", code=1).startswith("official: no: its model")


REFUSED = """
cut.tar.gz: damaged
a.h5 --archive a.h5: must end in .tar.gz
a.tar.gz --archive ./a.tar.gz: one of the files to check
a.h5 folder/a.h5 --archive x.tar.gz: another name, one of its own
ü.h5 --archive x.tar.gz: letters and digits
"""


def test_archives_that_cannot_be_are_refused():
    Path("folder").mkdir()
    for path in ("a.h5", "folder/a.h5", "ü.h5"):
        shutil.copy(SAMPLE, path)
    whole = archive.pack({"a.h5": SAMPLE.read_bytes()}, "")
    Path("a.tar.gz").write_bytes(whole)
    Path("cut.tar.gz").write_bytes(whole[: len(whole) // 2])
    refuses("check-rules", REFUSED)
    assert Path("a.tar.gz").read_bytes() == whole
    assert not Path("x.tar.gz").exists()


FOREIGN = """
link.h5: may have files NAME.h5 and verdict.txt only
../a.h5: '../a.h5'
a.h5 a.h5: a.h5 twice
verdict.txt: no result file
large.h5: unpacks to more than 20480 bytes
a.h5: foreign.tar.gz/a.h5 is not a miniTaw result
"""


@pytest.mark.parametrize("line", FOREIGN.strip().split("\n"))
def test_foreign_archives_are_refused(line):
    names, says = line.split(": ")
    with tarfile.open("foreign.tar.gz", "w:gz") as packed:
        for name in names.split():
            member = tarfile.TarInfo(name)
            member.size = {"link.h5": 0, "large.h5": 20000}.get(name, 1)
            member.type = tarfile.REGTYPE if member.size else tarfile.SYMTYPE
            packed.addfile(member, io.BytesIO(bytes(member.size)))
    with mock.patch.object(archive, "MOST_BYTES", 20480):
        refused(script("check-rules", "foreign.tar.gz"), says, name="check-rules")
