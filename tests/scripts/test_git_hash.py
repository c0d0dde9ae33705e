# SPDX-License-Identifier: BSD-3-Clause
"""The git hash that a build carries: "-dirty" for what may have changed the program and for nothing
else."""

import os
import pathlib

import pytest
from programs import REPOSITORY, call

SOURCE, OUTPUT = pathlib.Path("source"), pathlib.Path("hash.hpp")


def git(*arguments):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "safe.directory=*")
    return call("git", *identity, *arguments, cwd=SOURCE, check=True).stdout.strip()


def built():
    folders = f"-DSOURCE={SOURCE.absolute()}", f"-DOUTPUT={OUTPUT.absolute()}"
    call("cmake", *folders, "-P", REPOSITORY / "cmake/GitHash.cmake", check=True)
    return OUTPUT.read_text(encoding="utf-8").split('"')[1]


def write(name, text):
    (SOURCE / name).parent.mkdir(parents=True, exist_ok=True)
    (SOURCE / name).write_text(text, encoding="utf-8")


def commit_all():
    git("add", "-A")
    git("commit", "-qm", "a message")
    return git("rev-parse", "--short=12", "HEAD")


@pytest.fixture(autouse=True)
def no_repository(monkeypatch):
    """None of the user's settings, and no repository around the folder."""
    for name in ("GLOBAL", "SYSTEM"):
        monkeypatch.setenv(f"GIT_CONFIG_{name}", os.devnull)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(pathlib.Path().absolute()))
    SOURCE.mkdir()


@pytest.mark.parametrize(
    ("given", "known"),
    [("0123456789ab", "0123456789ab"), ("01a-dirty", "01a-dirty"), ("a b", "unknown")],
)
def test_without_a_repository_the_environment_knows_it(given, known, monkeypatch):
    monkeypatch.setenv("MINITAW_COMMIT", given)
    assert built() == known


def test_what_may_change_the_program_is_dirty(monkeypatch):
    monkeypatch.setenv("MINITAW_COMMIT", "0123456789ab")  # a repository knows better
    git("init", "-q")
    for name, text in (("src/a.cpp", "1"), ("docs/a.md", "1"), (".gitignore", "*.o\n")):
        write(name, text)
    clean = commit_all()
    assert built() == clean
    stamp = OUTPUT.stat().st_mtime_ns
    for name in ("results/mine.h5", "deck.toml", "src/a.o"):
        write(name, "nobody compiles it")
    assert built() == clean and OUTPUT.stat().st_mtime_ns == stamp, "nothing is built again"
    for name in ("src/new.cpp", "miniapp/new.cpp", "cmake/new.cmake"):
        write(name, "no part of the commit")
        assert built() == f"{clean}-dirty", name
        (SOURCE / name).unlink()
    write("docs/a.md", "2")
    assert built() == f"{clean}-dirty"
    git("add", "-A")
    assert built() == f"{clean}-dirty", "what waits for a commit"
    assert built() != commit_all() == built()
