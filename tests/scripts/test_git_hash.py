# SPDX-License-Identifier: BSD-3-Clause
"""The git hash that a build carries: "-dirty" for what may have changed the program and for nothing
else."""

import os
import pathlib

import pytest
from programs import REPOSITORY, call


def git(*arguments):
    identity = "-c user.name=a -c user.email=a@b.c -c safe.directory=*"
    return call("git", *identity.split(), *arguments, check=True).stdout.strip()


def built():
    here = pathlib.Path().absolute()
    words = [f"-DSOURCE={here}", f"-DOUTPUT={here / 'build/hash.hpp'}"]
    call("cmake", *words, "-P", REPOSITORY / "cmake/GitHash.cmake", check=True)
    return pathlib.Path("build/hash.hpp").read_text().split('"')[1]


def commit_all():
    git("add", "-A")
    git("commit", "-qm", "a message")
    return git("rev-parse", "--short=12", "HEAD")


@pytest.fixture(autouse=True)
def no_repository(monkeypatch):
    """None of the user's settings, and no repository around the folder."""
    for name in ("GLOBAL", "SYSTEM"):
        monkeypatch.setenv(f"GIT_CONFIG_{name}", os.devnull)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(pathlib.Path().absolute().parent))
    for folder in ("build", "src", "miniapp", "cmake", "docs"):
        pathlib.Path(folder).mkdir()


def test_without_a_repository_the_environment_knows_it(monkeypatch):
    for given in ("0123456789ab", "01a-dirty", "a b"):
        monkeypatch.setenv("MINITAW_COMMIT", given)
        assert built() == ("unknown" if given == "a b" else given)


def test_what_may_change_the_program_is_dirty(monkeypatch):
    monkeypatch.setenv("MINITAW_COMMIT", "0123456789ab")  # a repository knows better
    page = pathlib.Path("docs/a.md")
    page.write_text("1")
    pathlib.Path(".gitignore").write_text("*.o\n/build/\n")
    git("init", "-q")
    clean = commit_all()
    assert built() == clean
    stamp = pathlib.Path("build/hash.hpp").stat().st_mtime_ns
    for name in ("mine.h5", "docs/b.md", "src/a.o"):  # nobody compiles them
        pathlib.Path(name).touch()
    assert built() == clean and pathlib.Path("build/hash.hpp").stat().st_mtime_ns == stamp
    for name in ("src/new.cpp", "miniapp/new.cpp", "cmake/new.cmake"):
        pathlib.Path(name).touch()
        assert built() == f"{clean}-dirty", name
        pathlib.Path(name).unlink()
    page.write_text("2")
    assert built() == f"{clean}-dirty"
    git("add", "-A")
    assert built() == f"{clean}-dirty", "what waits for a commit"
    assert built() != commit_all() == built()
