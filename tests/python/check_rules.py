# SPDX-License-Identifier: BSD-3-Clause
"""What the run rules demand of a result, rule by rule, on results as runs of the shipped decks
would leave them; and archives of results, sound and foreign ones."""

import io
import itertools
import shutil
import tarfile
from pathlib import Path
from unittest import mock

import files
import numpy
from support import SAMPLE, accepted, refused, run_all
from minitaw import archive
from minitaw import check_rules as subject
from minitaw.record import load

SEEN = load(SAMPLE)
SESSION = {
    "git_hash": "0123456789ab",
    "command": "minitaw run",
    "deck": "layers = 1",
    "devices": ["cpu"],
}
MOVED = numpy.arange(4)  # bytes


def arrays_of(columns):
    """`noise`: how far the samples lie around their median."""
    around = 1 + columns.pop("noise", 0) * numpy.linspace(-1, 1, columns["steps"])
    return {
        "seconds": columns["median_s"] * around[:, None],
        "bytes/planned": MOVED,
        "bytes/counted": columns.pop("counted", MOVED),
    }


def result_of(name, sessions=(SESSION,), first=None, verdict="VALID", seq=(), **changed):
    """Every case valid, its median 2 s for the first one, 3 s for the second, and so on. `first`:
    of case 0 alone."""
    deck = {"ranks": changed.get("ranks", 16), "verdict": "VALID", "status": "ok"}
    deck |= subject.read_size(name)
    deck.setdefault("micro_batches", deck.get("micro_batches_per_rank", 0) * deck["ranks"])
    rows = []
    product = itertools.product(deck["schedule"], seq or deck["seq"])
    for number, (schedule, length) in enumerate(product):
        columns = SEEN.iloc[0].to_dict() | deck
        columns |= {"schedule": schedule, "seq": length, "case": number, "median_s": 2.0 + number}
        columns |= changed | ({} if number else first or {})
        arrays = arrays_of(columns)
        rows += [(columns | {"repetition": i}, arrays) for i in range(columns["repeats"])]
    settings = SEEN.file[0].settings
    return files.in_memory(rows, settings=settings, sessions=list(sessions), verdict=verdict)


def check(says, result, *how):
    """That the first broken rule is this one; "": none is."""
    found = subject.official(result, *how).reason
    assert says in found and bool(says) == bool(found), (says, found)


def shipped_decks_are_official():
    for name, lengths in zip(subject.NAMES, (3, 3, 3, 4, 3, 2), strict=True):
        found = subject.official(result_of(name))
        assert f"official: yes ({name}, baseline)\n" in found.text(), found
        assert len(found.bests) == lengths, found


def a_broken_rule_is_named():
    """And what is free may change. the_scope_is_told has a wrong seed and too few repeats."""
    for name, changed, says in [
        ("medium", {"micro_batch": 2, "micro_batches": 16, "recompute": "none"}, ""),
        ("medium", {"replicas": 2, "groups": "4+4", "steps": 30, "repeats": 9, "warmup": 4}, ""),
        ("8b", {"ranks": 2560, "replicas": 320}, ""),
        ("small", {"median_s": 0.25}, ""),  # which needs no time
        ("medium", {"dtype": "fp32"}, 'case 0: dtype is "fp32", medium has "bf16"'),
        ("medium", {"learning_rate": 0.1}, "learning_rate"),
        ("small", {"data": "a.txt"}, "data"),
        ("small", {"context": 2}, "context"),
        ("medium", {"steps": 2}, "steps = 2, medium needs 3"),
        ("large", {"warmup": 0}, "warmup = 0"),
        ("large", {"seq": (1024, 4096, 24576, 32768)}, "seq = 32768 is no length of large"),
        ("large", {"seq": (4096, 24576)}, "lengths 1024, 4096, 24576"),
        ("large", {"micro_batches": 80}, "80 sequences in a step, large has 160"),
        ("medium", {"median_s": 0.25}, "3.75 s of timed steps, 10 are needed"),
        ("8b", {"ranks": 12}, "12 ranks, 8b takes multiples of 8"),
        ("8b", {"micro_batches": 128}, "128 sequences in a step, 8b has 64"),
        ("8b", {"first": {"ranks": 8, "micro_batches": 32}}, "ranks: 8b takes a file for each"),
        ("70b", {"vocab": 32000}, "seq = 16384 is no length of large"),
        ("small", {"status": "wrong"}, "case 0: INVALID: wrong"),
        ("small", {"heads": 8}, "that of none of small, medium, large, 8b, 70b, 405b"),
        ("small", {"verdict": "INVALID: unfinished"}, "the file says INVALID: unfinished"),
    ]:
        check(says, result_of(name, **changed))
    check("no case", SEEN[:0])
    result = result_of("small")
    result.loc[result.case == 1, "heads"] = 8
    check("case 1: its model is not that of small", result)
    assert not subject.official(result_of("large", seq=(4096,))).bests, "a part of the lengths"


def a_file_is_not_believed():
    """Verdicts and medians follow from samples and bytes, whatever the file says of them."""
    faster = result_of("small")
    faster.loc[3, "median_s"] /= 2
    check("run 3 says VALID, step 1 s, but its samples and bytes say VALID, step 2 s", faster)
    assert subject.official(faster).rate == subject.official(result_of("small")).rate
    for first, says in (
        ({"counted": MOVED + 1}, "INVALID: the bytes counted are not those planned"),
        ({"steps": 2}, "INVALID: 2 timed steps, 3 are needed"),
        ({"noise": 0.3}, "VALID (noisy: quartiles 30 % of the median apart)"),
    ):
        found = subject.official(result_of("small", first=first)).reasons
        assert f"case 0: {says}" in found, found
        assert any(one.startswith("run 0 says VALID, step 2 s, but its") for one in found), found
    drift = result_of("small")
    for run in range(5):
        drift.file[0].content[run] = {"seconds": numpy.full((5, 1), 2.0 + run)}
        drift.loc[run, "median_s"] = 2.0 + run
    check("case 0: VALID (noisy: quartiles 50 % of the median apart)", drift)
    assert subject.official(result_of("small")[1:]).reasons == [
        "case 0: INVALID: 4 of 5 repetitions",
        "the file says VALID, but not all of its cases are valid",
    ]


def sessions_must_be_of_one_commit():
    for change, says in (
        ({}, ""),
        ({"git_hash": "0123456789ab-dirty"}, "differ from their commit"),
        ({"git_hash": "unknown"}, "not known"),
        ({"git_hash": ""}, "not known"),
        ({"git_hash": "0a9876543210"}, "different commits"),
        *(({name: ""}, "not complete") for name in ("devices", "deck", "command")),
    ):
        check(says, result_of("small", sessions=[SESSION, SESSION | change]))


def tiers_go_with_commits():
    for tier, published, says in (
        ("baseline", SESSION["git_hash"] + "cdef", ""),
        ("baseline", "ba9876543210", "its commit is not the published one"),
        ("ported", "ba9876543210", ""),
        ("optimized", SESSION["git_hash"], "tier optimized, but its commit is the published one"),
    ):
        check(says, result_of("small"), tier, published)


def a_submission_ends_within_a_day():
    result = result_of("small").assign(begun="", ended="")
    result.loc[[0, 1], "begun"] = "2026-11-24T09:00:00Z", "2026-11-24T08:00:00Z"
    for last, says in (
        ("2026-11-25T07:59:59Z", ""),
        ("2026-11-25T08:00:01.5+00:00", "24 hours from the first timed step to the last"),
    ):
        result.loc[[0, 1], "ended"] = last, "2026-11-24T08:01:00Z"
        check(says, result)


def every_length_weighs_the_same():
    """small has lengths 128, 256 and 512 with 8 sequences a step; its cases come by schedule, then
    length. A length that takes half the time raises the rate by the cube root of two, whichever it
    is."""
    whole = subject.official(result_of("small"))
    first = (1024 / 2.0 * 2048 / 3.0 * 4096 / 4.0) ** (1 / 3)
    assert abs(whole.rate - first) < 1e-9 * first
    assert "# S = 256: 682.667 tokens/s, 2048 tokens in 3 s (tawpipe)\n" in whole.text()
    assert "rate of small: 710.002 tokens/s, 20 million tokens in 28168.9 s\n" in whole.text()
    for number in range(3):
        faster = result_of("small")
        for run in faster.index[faster.case == number]:
            faster.file[0].content[run]["seconds"] /= 2 if run % 5 == 0 else 1
        assert abs(subject.official(faster).rate / whole.rate - 2 ** (1 / 3)) < 1e-9, number
    for worse, kind in (({"median_s": 7.0}, "rate"), ({"status": "error"}, "estimate")):
        found = subject.official(result_of("small", first=worse))
        # The second schedule takes its place, in 5 s.
        assert abs(found.rate - first * (2 / 5) ** (1 / 3)) < 1e-9 * first, found.text()
        assert found.text().startswith(f"{kind} of small: "), found.text()


def the_scope_is_told():
    """Which cases, of which commit, and what no program can see; of many broken rules, ten."""
    lines = subject.official(result_of("small", repeats=4, first={"seed": 3})).text().splitlines()
    assert lines[1:3] == [
        'official: no: case 0: seed is "3", small has "1"',
        "# also: case 0: repeats = 4, small needs 5",
    ]
    assert lines[11] == "# and 15 more", lines
    judged = "# judged: 24 cases of 1 session, commit 0123456789ab, by the rules of small"
    assert lines[12].startswith(judged) and lines[13].startswith("# not checked: "), lines


def checked(words, code=0):
    return accepted("check-rules", *words.split(), code=code)


def an_archive_has_the_records_and_the_verdict():
    """One that is official and one that is not; and one with a verdict of somebody else."""
    for name in ("a.h5", "b.h5"):
        shutil.copy(SAMPLE, name)
    results = {"a.h5": result_of("small"), "b.h5": result_of("medium", seed=2)}
    with mock.patch.object(subject, "load", lambda path, _: results[Path(path).name]):
        said = checked("a.h5 b.h5 --archive both.tar.gz", code=1)
        assert checked("both.tar.gz", code=1) == said
        one = checked("a.h5 --tier ported --published ba9876543210 --archive one.tgz")
        assert one.startswith("rate of small") and "official: yes (small, ported)\n" in one
        assert "the published one" in checked("one.tgz --published ba9876543210", code=1)
    assert said.startswith("# a.h5\nrate of small: ") and "\n# b.h5\nestimate of medium: " in said
    with tarfile.open("both.tar.gz") as packed:
        content = {name: packed.extractfile(name).read() for name in packed.getnames()}
    sample = SAMPLE.read_bytes()
    assert content == {"verdict.txt": said.encode(), "a.h5": sample, "b.h5": sample}
    others = archive.pack({"a.h5": sample}, "official: yes\n")
    Path("others.tar.gz").write_bytes(others)
    assert checked("others.tar.gz", code=1).startswith("official: no: its model")


def bad_archives_are_refused():
    Path("folder").mkdir(exist_ok=True)
    Path("x.tar.gz").unlink(missing_ok=True)  # of a run that failed
    for path in ("folder/a.h5", "ü.h5"):
        shutil.copy(SAMPLE, path)
    whole = Path("both.tar.gz").read_bytes()
    Path("cut.tar.gz").write_bytes(whole[: len(whole) // 2])
    Path("no.tar.gz").write_bytes(b"hello")
    for words, says in (
        ("cut.tar.gz", "damaged"),
        ("no.tar.gz", "not a tar.gz archive"),
        ("a.h5 --archive a.h5", "must end in .tar.gz"),
        ("both.tar.gz --archive ./both.tar.gz", "one of the files to check"),
        ("a.h5 folder/a.h5 --archive x.tar.gz", "another name, one of its own"),
        ("ü.h5 --archive x.tar.gz", "letters and digits"),
    ):
        refused("check-rules", *words.split(), says=says)
    assert Path("both.tar.gz").read_bytes() == whole
    assert not Path("x.tar.gz").exists()


def foreign_archives_are_refused():
    """Links, paths that lead out, files of other names, one twice, none, more than fits."""
    for members, says in (
        ([("a.h5", None)], "may have files NAME.h5 and verdict.txt only"),
        ([("../a.h5", b"1")], "'../a.h5'"),
        ([("a.h5", b"1"), ("a.h5", b"2")], "a.h5 twice"),
        ([("verdict.txt", b"official: yes")], "no result file"),
        ([("a.h5", bytes(20000))], "unpacks to more than 20480 bytes"),
        ([("a.h5", b"1")], "foreign.tar.gz/a.h5 is not a miniTaw result"),
    ):
        with tarfile.open("foreign.tar.gz", "w:gz") as packed:
            for name, data in members:
                member = tarfile.TarInfo(name)
                member.size = len(data or b"")
                member.type = tarfile.SYMTYPE if data is None else tarfile.REGTYPE
                packed.addfile(member, io.BytesIO(data or b""))
        with mock.patch.object(archive, "MOST_BYTES", 20480):
            refused("check-rules", "foreign.tar.gz", says=says)


run_all(
    shipped_decks_are_official,
    a_broken_rule_is_named,
    a_file_is_not_believed,
    sessions_must_be_of_one_commit,
    tiers_go_with_commits,
    a_submission_ends_within_a_day,
    every_length_weighs_the_same,
    the_scope_is_told,
    an_archive_has_the_records_and_the_verdict,
    bad_archives_are_refused,
    foreign_archives_are_refused,
)
