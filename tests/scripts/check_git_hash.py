# SPDX-License-Identifier: BSD-3-Clause
"""The git hash that a build carries: taken at every run of cmake/GitHash.cmake, "-dirty" for what
may have changed the program and for nothing else. Called with cmake, that file and a folder to
write to."""

import os
import pathlib
import shutil
import subprocess
import sys

import programs

CMAKE, SCRIPT, FOLDER = sys.argv[1:]
FOLDER = pathlib.Path(FOLDER)
SOURCE, OUTPUT = FOLDER / "source", FOLDER / "hash.hpp"
# none of the user's settings, and no repository around the folder
ENVIRONMENT = {
    **os.environ,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CEILING_DIRECTORIES": str(FOLDER),
}


def git(*arguments):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "safe.directory=*")
    done = programs.call("git", *identity, *arguments, cwd=SOURCE, env=ENVIRONMENT, check=True)
    return done.stdout.strip()


def built():
    subprocess.run(
        [CMAKE, f"-DSOURCE={SOURCE}", f"-DOUTPUT={OUTPUT}", "-P", SCRIPT],
        env=ENVIRONMENT,
        check=True,
    )
    return OUTPUT.read_text(encoding="utf-8").split('"')[1]


def write(name, text):
    (SOURCE / name).parent.mkdir(parents=True, exist_ok=True)
    (SOURCE / name).write_text(text, encoding="utf-8")


def commit_all(message):
    git("add", "-A")
    git("commit", "-qm", message)
    return git("rev-parse", "--short=12", "HEAD")


def without_a_repository_it_is_unknown():
    for given, known in (
        ("", "unknown"),
        ("0123456789ab", "0123456789ab"),
        ("01ab-dirty", "01ab-dirty"),
        ("main", "unknown"),
        ("abc or so", "unknown"),
    ):
        ENVIRONMENT["MINITAW_COMMIT"] = (
            given  # as a container's recipe says it; a repository knows better
        )
        assert built() == known


def an_unchanged_tree_rebuilds_nothing():
    stamp = OUTPUT.stat().st_mtime_ns
    assert built() == clean and OUTPUT.stat().st_mtime_ns == stamp


def files_that_nobody_compiles_do_not_count():
    for name in ("results/mine.h5", "deck.toml", "src/a.o"):
        write(name, "x")
    assert built() == clean


def sources_without_a_commit_count():
    for name in ("src/new.cpp", "miniapp/new.cpp", "cmake/new.cmake"):
        write(name, "x")
        assert built() == clean + "-dirty", f"{name} is no part of the commit"
        (SOURCE / name).unlink()


def changed_files_count():
    for name in ("src/a.cpp", "docs/a.md"):
        write(name, "2")
        assert built() == clean + "-dirty", f"{name} differs from the commit"
        write(name, "1")
        assert built() == clean


def a_new_commit_needs_no_configuring():
    write("src/a.cpp", "3")
    git("add", "-A")
    assert built() == clean + "-dirty", "changes that wait for a commit"
    assert built() != commit_all("two") == built()


shutil.rmtree(FOLDER, ignore_errors=True)
SOURCE.mkdir(parents=True)
without_a_repository_it_is_unknown()
git("init", "-q")
for name, text in (("src/a.cpp", "1"), ("docs/a.md", "1"), (".gitignore", "*.o\n")):
    write(name, text)
clean = commit_all("one")
assert built() == clean
for check in (
    an_unchanged_tree_rebuilds_nothing,
    files_that_nobody_compiles_do_not_count,
    sources_without_a_commit_count,
    changed_files_count,
    a_new_commit_needs_no_configuring,
):
    check()
