# SPDX-License-Identifier: BSD-3-Clause
"""scripts/bundle as sender and receiver meet it, on a result that is not valid, and archives that
are none of its own."""

import functools
import gzip
import hashlib
import io
import os
import pathlib
import shutil
import tarfile
import tempfile
from unittest import mock

from support import FOLDER, SAMPLE, accepted, call
from minitaw import archive
from minitaw.provenance import session_texts
from minitaw.record import Result
from support import refused as refused_by

refused = functools.partial(refused_by, "bundle")


def content(archive):
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            assert member.isfile(), member
            assert member.name.startswith("bundle/"), member
            assert member.mode == 0o644, member
            assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", ""), member
            assert member.mtime == 315532800, "1980-01-01, which every format of archives knows"
        assert tar.getnames() == sorted(tar.getnames())
        return {
            member.name.removeprefix("bundle/"): tar.extractfile(member).read()
            for member in tar.getmembers()
        }


def make():
    shutil.copy(SAMPLE, FOLDER / "r.h5")
    (FOLDER / "job.sh").write_text("srun minitaw\n", encoding="utf-8")
    (FOLDER / "two  spaces").touch()
    said = accepted("bundle", "r.h5", "--add", "two  spaces", "--add", "job.sh")
    assert "RESULT: INVALID" in said, said  # said, but no reason not to pack it
    digest = hashlib.sha256((FOLDER / "r.tar.gz").read_bytes()).hexdigest()
    assert said.startswith("official: no") and said.endswith(f"\n{digest}  r.tar.gz\n"), said


def check_content():
    files = content(FOLDER / "r.tar.gz")
    assert files["record.h5"] == (FOLDER / "r.h5").read_bytes()
    assert files["added/job.sh"] == b"srun minitaw\n"
    assert files["summary.csv"].decode() == accepted("export", "r.h5")
    facts = files["environment.txt"].decode().split("== session ")[2].splitlines()
    title = "{:<16} {}".format
    nodes = [
        title(f"node {node}", what)
        for node, whats in (
            (0, ("processor a processor", "system Linux 6")),
            (1, ("processor another", "system Linux 7")),
        )
        for what in whats
    ]
    ranks = [
        title(f"rank {rank}", f"{host}, cpu, cores {cores}")
        for rank, host, cores in ((0, "a", "0-3"), (1, "a", "4-7,9"), (2, "b", "0-1"))
    ]
    assert [line for line in facts if line[:4] in ("node", "rank")] == nodes + ranks, facts
    assert facts[0].startswith("1, started 20"), facts
    assert title("command", "minitaw run sample.toml") in facts, facts
    assert {"README.txt", "deck.toml", "log.txt", "environment.txt", "summary.csv"} < set(files)
    sums = {
        name: digest
        for digest, name in (
            line.split("  ", 1) for line in files.pop("SHA256SUMS").decode().splitlines()
        )
    }
    assert sums == {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def check_sessions():
    """The deck of a later session is there, if no session before it had the same, and the log and
    environment of each."""
    result = Result(
        "r.h5",
        sessions=[{"deck": deck, "log": [deck], "environment": [f"X={deck}"]} for deck in "abab"],
    )
    texts = session_texts(result)
    assert {name: text for name, text in texts.items() if name.startswith("deck")} == {
        "deck.toml": "a",
        "deck-0001.toml": "b",
    }
    parts = [f"== session {number}, started \n{{}}{deck}\n" for number, deck in enumerate("abab")]
    assert texts["log.txt"] == "\n".join(parts).format(*[""] * 4), texts
    assert texts["environment.txt"] == "\n".join(parts).format(*["X="] * 4), texts


def check_reproducible():
    """Another day, another umask, another order, another place: the same bytes."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as other:
        shutil.copy(FOLDER / "job.sh", other)
        os.utime(pathlib.Path(other, "job.sh"), (10**9, 10**9))
        os.chmod(pathlib.Path(other, "job.sh"), 0o700)
        assert (
            call(
                "bundle",
                "--add",
                pathlib.Path(other, "job.sh"),
                "--add",
                "two  spaces",
                "-o",
                "again.tar.gz",
                "r.h5",
            ).returncode
            == 0
        )
    assert (FOLDER / "again.tar.gz").read_bytes() == (FOLDER / "r.tar.gz").read_bytes()


def check_checking():
    said, rules = accepted("bundle", "--check", "r.tar.gz", code=1), accepted(
        "check-rules", "r.h5", code=1
    )
    assert "RESULT: INVALID" in said and rules.startswith("official: no: "), said
    assert said.startswith(rules) and rules in content(FOLDER / "r.tar.gz")["README.txt"].decode()
    with tempfile.TemporaryDirectory(
        dir=FOLDER
    ) as other:  # unpacked and packed again by hand, as a receiver may
        with tarfile.open(FOLDER / "r.tar.gz") as tar:
            tar.extractall(other, filter="data")
        with tarfile.open(FOLDER / "by-hand.tgz", "w:gz") as tar:
            tar.add(pathlib.Path(other, "bundle"), "bundle")
        accepted("bundle", "--check", "by-hand.tgz", code=1)
        pathlib.Path(other, "bundle", "log.txt").write_text("RESULT: VALID\n", encoding="utf-8")
        with tarfile.open(FOLDER / "by-hand.tgz", "w:gz") as tar:
            tar.add(pathlib.Path(other, "bundle"), "bundle")
    refused("--check", "by-hand.tgz", says=("log.txt", "SHA256SUMS"))


def check_refusals():
    archive = (FOLDER / "r.tar.gz").read_bytes()
    (FOLDER / "cut.tar.gz").write_bytes(archive[: len(archive) // 2])
    for words, says in (
        ("--check cut.tar.gz", "damaged"),
        ("--check r.h5", "not a tar.gz"),
        ("--check missing.tar.gz", "cannot be read"),
        ("--check .", "Is a directory"),
        ("", "name a result file"),
        ("r.h5 --check r.tar.gz", "name a result file"),
        ("--check r.tar.gz -o x.tar.gz", "--check"),
        ("missing.h5", "cannot be read"),
        ("job.sh", "not a miniTaw result"),
        ("r.h5 -o r.h5", ".tar.gz"),
        ("r.h5 -o missing/x.tar.gz", "cannot be written"),
        ("r.h5 -o /dev/full/x.tar.gz", "cannot be written"),
        ("r.h5 --add missing", "cannot be read"),
        ("r.h5 --add r.tar.gz -o r.tar.gz", "one of the files that go into the bundle"),
        ("r.h5 --add job.sh --add ./job.sh", "needs another name, one of its own"),
        ("r.h5 --add ..", "Is a directory"),
    ):
        refused(*words.split(), says=says)
    (FOLDER / "a\\b").touch()
    refused("r.h5", "--add", "a\\b", says="without a backslash")
    assert (FOLDER / "r.tar.gz").read_bytes() == archive, "a refusal changed the archive"


def check_foreign():
    """What no bundle holds: files that SHA256SUMS does not know, links to what is not there, more
    than fits into memory."""
    for members, says in (
        ({"bundle/x": b"1"}, "x is not what SHA256SUMS says"),
        ({"bundle/SHA256SUMS": b""}, "record.h5 is not what SHA256SUMS says"),
        (
            {"x": b"1", "bundle/SHA256SUMS": f"{hashlib.sha256(b'1').hexdigest()}  x\n".encode()},
            "does not lie in bundle/",
        ),
        ({"bundle/x": None}, "is a link"),
    ):
        with tarfile.open(FOLDER / "foreign.tar.gz", "w:gz") as tar:
            for name, data in members.items():
                member = tarfile.TarInfo(name)
                member.type, member.size, member.linkname = (
                    tarfile.SYMTYPE if data is None else tarfile.REGTYPE,
                    len(data or b""),
                    "/etc/passwd",
                )
                tar.addfile(member, io.BytesIO(data or b""))
        refused("--check", "foreign.tar.gz", says=says)
    with mock.patch.object(archive, "MOST_BYTES", 1 << 20):
        member = tarfile.TarInfo("bundle/record.h5")
        member.size = 1 << 40
        (FOLDER / "bomb.tar.gz").write_bytes(gzip.compress(member.tobuf() + bytes((1 << 20) + 1)))
        refused("--check", "bomb.tar.gz", says="unpacks to more than")


for left in FOLDER.iterdir():
    left.unlink()
for check in (
    make,
    check_content,
    check_sessions,
    check_reproducible,
    check_checking,
    check_refusals,
    check_foreign,
):
    check()
