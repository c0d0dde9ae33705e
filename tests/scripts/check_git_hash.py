"""The git hash that a build carries: taken at every run of cmake/GitHash.cmake, "-dirty" for what may have changed the program and for
nothing else. Called with cmake, that file and a folder to write to."""

import os
import pathlib
import shutil
import subprocess
import sys

CMAKE, SCRIPT, FOLDER = sys.argv[1:]
FOLDER = pathlib.Path(FOLDER)
SOURCE = FOLDER / "source"
OUTPUT = FOLDER / "hash.hpp"
# none of the user's settings, and no repository around the folder
ENVIRONMENT = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "GIT_CEILING_DIRECTORIES": str(FOLDER)}


def git(*arguments):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "safe.directory=*")
    done = subprocess.run(["git", *identity, *arguments], cwd=SOURCE, env=ENVIRONMENT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def built():
    subprocess.run([CMAKE, f"-DSOURCE={SOURCE}", f"-DOUTPUT={OUTPUT}", "-P", SCRIPT], env=ENVIRONMENT, check=True)
    return OUTPUT.read_text(encoding="utf-8").split('"')[1]


def write(name, text):
    (SOURCE / name).parent.mkdir(parents=True, exist_ok=True)
    (SOURCE / name).write_text(text, encoding="utf-8")


shutil.rmtree(FOLDER, ignore_errors=True)
SOURCE.mkdir(parents=True)
assert built() == "unknown", "no repository"
git("init", "-q")
for name, text in (("src/a.cpp", "1"), ("docs/a.md", "1"), (".gitignore", "*.o\n")):
    write(name, text)
git("add", "-A")
git("commit", "-qm", "one")
clean = git("rev-parse", "--short=12", "HEAD")
assert built() == clean
stamp = OUTPUT.stat().st_mtime_ns
assert built() == clean and OUTPUT.stat().st_mtime_ns == stamp, "an unchanged tree rebuilds nothing"
for name in ("results/mine.h5", "deck.toml", "src/a.o"):
    write(name, "x")
assert built() == clean, "files that nobody compiles"
for name in ("src/new.cpp", "miniapp/new.cpp", "cmake/new.cmake"):
    write(name, "x")
    assert built() == clean + "-dirty", f"{name} is no part of the commit"
    (SOURCE / name).unlink()
for name in ("src/a.cpp", "docs/a.md"):
    write(name, "2")
    assert built() == clean + "-dirty", f"{name} differs from the commit"
    write(name, "1")
    assert built() == clean
write("src/a.cpp", "3")
git("add", "-A")
assert built() == clean + "-dirty", "changes that wait for a commit"
git("commit", "-qm", "two")
assert built() == git("rev-parse", "--short=12", "HEAD") != clean, "a new commit, without configuring anew"
