# SPDX-License-Identifier: BSD-3-Clause
"""What the run rules demand of a result, rule by rule, on results as runs of the shipped decks
would leave them; and archives of results, sound and foreign ones."""

import io
import itertools
import pathlib
import shutil
import tarfile
import tomllib
from unittest import mock

import files
import numpy
from support import FOLDER, REPOSITORY, SAMPLE, accepted, refused, run_all
from minitaw import archive
from minitaw import check_rules as subject
from minitaw.numbers import size_value
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


def result_of(name, sessions=None, first=None, verdict="VALID", seq=(), **changed):
    """Every case valid, its median 2 s for the first one, 3 s for the second, and so on. `first`:
    of case 0 alone."""
    deck = {"ranks": changed.get("ranks", 16), "context": 1, "verdict": "VALID", "status": "ok"}
    text = (REPOSITORY / f"inputs/acceptance/{name}.toml").read_text()
    for key, value in tomllib.loads(text).items():
        deck[key] = value if isinstance(value, list) else size_value(value)
    deck.setdefault("micro_batches", deck.get("micro_batches_per_rank", 0) * deck["ranks"])
    rows = []
    product = itertools.product(deck["schedule"], map(size_value, seq or deck["seq"]))
    for number, (schedule, length) in enumerate(product):
        columns = SEEN.iloc[0].to_dict() | deck
        columns |= {"schedule": schedule, "seq": length, "case": number, "median_s": 2.0 + number}
        columns |= changed | ({} if number else first or {})
        arrays = arrays_of(columns)
        rows += [(columns | {"repetition": i}, arrays) for i in range(columns["repeats"])]
    sessions = [SESSION] if sessions is None else sessions
    return files.in_memory(rows, settings=SEEN.file[0].settings, sessions=sessions, verdict=verdict)


def reason(name, **changed):
    return subject.official(result_of(name, **changed)).reason


def shipped_decks_are_official():
    for name in subject.NAMES:
        found = subject.official(result_of(name))
        assert found.reason == "", found
        assert found.size == name, found
        assert len(found.bests) == {"8b": 4, "405b": 2}.get(name, 3), found
        assert f"official: yes ({name}, baseline)\n" in found.text()


def free_settings_may_change():
    more = {"steps": 30, "repeats": 9, "warmup": 4}
    for name, changed in (
        ("medium", {"micro_batch": 2, "micro_batches": 16, "recompute": "none"}),
        ("medium", {"replicas": 2, "groups": "4+4", **more}),
        ("8b", {"ranks": 2560, "replicas": 320}),
        ("8b", {"ranks": 8, "micro_batch": 4, "micro_batches": 8}),
        ("small", {"median_s": 0.25}),  # which needs no time
    ):
        assert reason(name, **changed) == "", (name, changed)


def a_broken_rule_is_named():
    for name, changed, says in [
        ("medium", {"dtype": "fp32"}, 'case 0: dtype is "fp32", medium has "bf16"'),
        ("medium", {"seed": 2}, "seed"),
        ("medium", {"learning_rate": 0.1}, "learning_rate"),
        ("small", {"first": {"data": "a.txt"}}, 'case 0: data is "a.txt", small has "synthetic"'),
        ("medium", {"steps": 2}, "steps = 2, medium needs 3"),
        ("small", {"repeats": 4}, "repeats = 4, small needs 5"),
        ("large", {"warmup": 0}, "warmup = 0"),
        ("large", {"seq": ["1K", "4K", "24K", "32K"]}, "seq = 32768 is no length of large"),
        ("large", {"micro_batches": 80}, "80 sequences in a step, large has 160"),
        ("medium", {"median_s": 0.25}, "3.75 s of timed steps, 10 are needed"),
        ("8b", {"ranks": 12}, "12 ranks, 8b takes multiples of 8"),
        ("8b", {"micro_batches": 128}, "128 sequences in a step, 8b has 64"),
        ("8b", {"first": {"ranks": 8, "micro_batches": 32}}, "ranks: 8b takes a file for each"),
        ("70b", {"vocab": 32000}, "seq = 16384 is no length of large"),
        ("small", {"first": {"context": 2}}, "context"),
        ("small", {"first": {"status": "wrong"}}, "case 0: INVALID: wrong"),
        ("small", {"first": {"noise": 0.2}}, "case 0: VALID (noisy: quartiles 20 % of the"),
    ]:
        assert says in reason(name, **changed), (name, changed, reason(name, **changed))
    assert "no case" in subject.official(SEEN[:0]).reason
    other = subject.official(result_of("small", first={"heads": 8})).reason
    assert other == "its model is that of none of small, medium, large, 8b, 70b, 405b"
    result = result_of("small")
    result.loc[result.case == 1, "heads"] = 8
    assert subject.official(result).reason == "case 1: its model is not that of small"
    part = subject.official(result_of("large", seq=["4K", "24K"]))
    assert "lengths 1024, 4096, 24576" in part.reason
    assert not part.bests, "no rate of a part of the lengths"


def a_file_is_not_believed():
    """Verdicts and medians follow from samples and bytes, whatever the file says of them."""
    faster = result_of("small")
    faster.loc[3, "median_s"] /= 2
    found = subject.official(faster)
    says = "run 3 says VALID, step 1 s, but its samples and bytes say VALID, step 2 s"
    assert found.reason == says, found
    assert found.rate == subject.official(result_of("small")).rate
    for first, says in (
        ({"counted": MOVED + 1}, "INVALID: the bytes counted are not those planned"),
        ({"steps": 2}, "INVALID: 2 timed steps, 3 are needed"),
        ({"noise": 0.3}, "VALID (noisy: quartiles 30 % of the median apart)"),
        ({"status": "error"}, "INVALID: error"),
    ):
        found = subject.official(result_of("small", first=first)).reasons
        assert f"case 0: {says}" in found, found
        assert any(one.startswith(f"run 0 says VALID, step 2 s, but its") for one in found), found
    drift = result_of("small")
    for run in range(5):
        drift.file[0].content[run] = {"seconds": numpy.full((5, 1), 2.0 + run)}
        drift.loc[run, "median_s"] = 2.0 + run
    found = subject.official(drift)
    assert found.reason == "case 0: VALID (noisy: quartiles 50 % of the median apart)", found
    lacks = subject.official(result_of("small")[1:]).reasons
    assert lacks == ["case 0: INVALID: 4 of 5 repetitions", *lacks[1:]]
    assert lacks[1:] == ["the file says VALID, but not all of its cases are valid"], lacks
    unfinished = reason("small", verdict="INVALID: unfinished cases: 3")
    assert unfinished == "the file says INVALID: unfinished cases: 3", unfinished


def sessions_must_be_of_one_commit():
    for change, says in (
        ({}, ""),
        ({"git_hash": "0123456789ab-dirty"}, "differ from their commit"),
        ({"git_hash": "unknown"}, "not known"),
        ({"git_hash": ""}, "not known"),
        ({"git_hash": "0a9876543210"}, "different commits"),
        *(({name: ""}, "not complete") for name in ("devices", "deck", "command")),
    ):
        found = reason("small", sessions=[SESSION, SESSION | change])
        assert says in found and bool(says) == bool(found), (change, found)


def tiers_go_with_commits():
    result = result_of("small")
    for tier, published, says in (
        ("baseline", SESSION["git_hash"] + "cdef", ""),
        ("baseline", "ba9876543210", "its commit is not the published one"),
        ("ported", "ba9876543210", ""),
        ("ported", SESSION["git_hash"], "tier ported, but its commit is the published one"),
    ):
        found = subject.official(result, tier, published)
        assert says in found.reason and bool(says) == bool(found.reason), found
    assert "official: yes (small, optimized)" in subject.official(result, "optimized").text()


def a_submission_ends_within_a_day():
    result = result_of("small").assign(begun="", ended="")
    result.loc[[0, 1], "begun"] = "2026-11-24T09:00:00Z", "2026-11-24T08:00:00Z"
    for last, says in (
        ("2026-11-25T07:59:59Z", ""),
        ("2026-11-25T08:00:01.5+00:00", "24 hours from the first timed step to the last"),
    ):
        result.loc[[0, 1], "ended"] = last, "2026-11-24T08:01:00Z"
        found = subject.official(result).reason
        assert says in found and bool(says) == bool(found), found


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
        assert "# S = 128: 204.8 tokens/s, 1024 tokens in 5 s (weipipe)\n" in found.text()


def the_scope_is_told():
    """Which cases, of which commit, and what no program can see; of many broken rules, ten."""
    lines = subject.official(result_of("small", repeats=4, first={"seed": 3})).text().splitlines()
    assert lines[1] == 'official: no: case 0: seed is "3", small has "1"', lines
    assert lines[2:11] == [f"# also: case {i}: repeats = 4, small needs 5" for i in range(9)], lines
    assert lines[11] == "# and 15 more", lines
    judged = "# judged: 24 cases of 1 session, commit 0123456789ab, by the rules of small"
    assert lines[12].startswith(judged) and lines[13].startswith("# not checked: "), lines


def the_command_prints_the_answer():
    none = "official: no: its model is that of none of small, medium, large, 8b, 70b, 405b\n"
    assert accepted("check-rules", SAMPLE, code=1) == none
    with mock.patch.object(subject, "load", lambda *_: result_of("small")):
        ported = ("check-rules", SAMPLE, "--tier", "ported", "--published")
        assert "official: yes (small, ported)\n" in accepted(*ported, "ba9876543210")
        assert "is the published one" in accepted(*ported, SESSION["git_hash"], code=1)


def an_archive_has_the_records_and_the_verdict():
    """One that is official and one that is not; packed again by hand, with another verdict."""
    for name in ("a.h5", "b.h5"):
        shutil.copy(SAMPLE, FOLDER / name)

    def loaded(path, _):
        return result_of("small" if "a.h5" in path else "medium", seed=1 if "a.h5" in path else 2)

    with mock.patch.object(subject, "load", loaded):
        said = accepted("check-rules", "a.h5", "b.h5", "--archive", "both.tar.gz", code=1)
        again = accepted("check-rules", "both.tar.gz", code=1)
        assert accepted("check-rules", "a.h5", "--archive", "one.tgz").startswith("rate of small")
        assert accepted("check-rules", "one.tgz") == accepted("check-rules", "a.h5")
    parts = said.split("# b.h5\n")
    assert parts[0].startswith("# a.h5\nrate of small: ") and "official: yes" in parts[0], said
    assert parts[1].startswith("estimate of medium: ") and "seed" in parts[1], said
    assert again == said
    with tarfile.open("both.tar.gz") as packed:
        assert packed.getnames() == ["verdict.txt", "a.h5", "b.h5"]
        packed.extractall("unpacked", filter="data")
    assert pathlib.Path("unpacked/verdict.txt").read_text(encoding="utf-8") == said
    assert pathlib.Path("unpacked/b.h5").read_bytes() == SAMPLE.read_bytes()
    with tarfile.open("by-hand.tar.gz", "w:gz", format=tarfile.USTAR_FORMAT) as packed:
        (FOLDER / "verdict.txt").write_text("official: yes\n", encoding="utf-8")
        packed.add("verdict.txt")
        packed.add("a.h5")
    assert accepted("check-rules", "by-hand.tar.gz", code=1).startswith("official: no: its model")


def bad_archives_are_refused():
    (FOLDER / "folder").mkdir()
    for path in (FOLDER / "folder/a.h5", FOLDER / "a b.h5"):
        shutil.copy(SAMPLE, path)
    whole = (FOLDER / "both.tar.gz").read_bytes()
    (FOLDER / "cut.tar.gz").write_bytes(whole[: len(whole) // 2])
    (FOLDER / "no.tar.gz").write_text("hello\n", encoding="utf-8")
    for words, says in (
        ("cut.tar.gz", "damaged"),
        ("no.tar.gz", "not a tar.gz archive"),
        ("missing.tar.gz", "cannot be read"),
        ("folder", "cannot be read"),
        ("no.tar.gz a.h5", "no.tar.gz is not a tar.gz archive"),
        ("a.h5 --archive a.h5", "must end in .tar.gz"),
        ("both.tar.gz --archive ./both.tar.gz", "one of the files to check"),
        ("a.h5 --archive missing/x.tar.gz", "cannot be written"),
        ("a.h5 folder/a.h5 --archive x.tar.gz", "another name, one of its own"),
    ):
        refused("check-rules", *words.split(), says=says)
    refused("check-rules", "a b.h5", "--archive", "x.tar.gz", says="letters and digits")
    assert (FOLDER / "both.tar.gz").read_bytes() == whole
    assert not (FOLDER / "x.tar.gz").exists()


def foreign_archives_are_refused():
    """Links, paths that lead out, files of other names, one twice, none, more than fits."""
    with mock.patch.object(archive, "MOST_BYTES", 20480):
        for members, says in (
            ([("a.h5", None)], "may have files NAME.h5 and verdict.txt only"),
            ([("../a.h5", b"1")], "'../a.h5'"),
            ([("/a.h5", b"1")], "'/a.h5'"),
            ([(".h5", b"1")], "'.h5'"),
            ([("folder/a.h5", b"1")], "'folder/a.h5'"),
            ([("a.txt", b"1")], "'a.txt'"),
            ([("a" * 200 + ".h5", b"1")], "may have files"),
            ([("a.h5", b"1"), ("a.h5", b"2")], "a.h5 twice"),
            ([("verdict.txt", b"official: yes")], "no result file"),
            ([("a.h5", bytes(20000))], "unpacks to more than 20480 bytes"),
            ([("a.h5", b"1")], "foreign.tar.gz/a.h5 is not a miniTaw result"),
        ):
            with tarfile.open("foreign.tar.gz", "w:gz") as packed:
                for name, data in members:
                    member = tarfile.TarInfo(name)
                    member.size, member.linkname = len(data or b""), "/etc/passwd"
                    member.type = tarfile.SYMTYPE if data is None else tarfile.REGTYPE
                    packed.addfile(member, io.BytesIO(data or b""))
            refused("check-rules", "foreign.tar.gz", says=says)


for left in FOLDER.iterdir():
    shutil.rmtree(left) if left.is_dir() else left.unlink()
run_all(
    shipped_decks_are_official,
    free_settings_may_change,
    a_broken_rule_is_named,
    a_file_is_not_believed,
    sessions_must_be_of_one_commit,
    tiers_go_with_commits,
    a_submission_ends_within_a_day,
    every_length_weighs_the_same,
    the_scope_is_told,
    the_command_prints_the_answer,
    an_archive_has_the_records_and_the_verdict,
    bad_archives_are_refused,
    foreign_archives_are_refused,
)
