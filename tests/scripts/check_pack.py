# SPDX-License-Identifier: BSD-3-Clause
"""scripts/pack: the packed programs run in another folder, with this machine's C library and with
the packed one, and find libraries that Python packages bring. Called with the repository, a folder
to write to and a build."""

import os
import pathlib
import shutil
import subprocess
import sys

import programs

REPOSITORY, FOLDER, BUILD = map(pathlib.Path, sys.argv[1:])
STEP = ["minitaw", "run", "inputs/gpu/step.toml", "--set", "schedule=ddp", "--set", "ranks=2", "-o"]


def packed(*command, code=0, **environment):
    done = programs.call(
        FOLDER / "elsewhere/packed/run", *command, cwd="/", env=os.environ | environment
    )
    assert done.returncode == code, f"exit {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def programs_run_with_either_c_library():
    for libc in ("own", "packed"):
        which = {"MINITAW_LIBC": libc, "MINITAW_FOLDERS": ""}
        said = packed("mpiexec", "-n", "2", *STEP, str(FOLDER / f"{libc}.h5"), **which)
        assert "RESULT: VALID" in said and (FOLDER / f"{libc}.h5").exists(), said
        loaded = packed("minitaw", "--version", LD_DEBUG="files", **which)
        assert f"calling init: {FOLDER}/elsewhere/packed/lib/libmpich.so.12" in loaded
        assert (f"calling init: {FOLDER}/elsewhere/packed/libc/libc.so.6" in loaded) == (
            libc == "packed"
        )


def transports_of_another_ucx_are_not_loaded():
    """UCX loads what it finds in this folder, and nothing is there."""
    folder = FOLDER / "elsewhere/packed/lib/ucx"
    assert packed("sh", "-c", "echo $UCX_MODULE_DIR").strip() == str(folder)
    assert not folder.exists()


def the_c_library_is_chosen_by_its_age():
    needed = FOLDER / "elsewhere/packed/libc/needed"
    assert needed.read_text().startswith("2.")
    for version, chosen in (("2.5", "own"), ("2.9999", "packed")):
        needed.write_text(version + "\n")
        assert packed("sh", "-c", "echo $MINITAW_LIBC").strip() == chosen, version


def a_library_of_a_python_package_is_found():
    """Of a program whose library is nowhere else, where it is called by its name."""
    site, place, python = (
        FOLDER / "site/nvidia/lost/lib",
        FOLDER / "elsewhere/packed",
        FOLDER / "bin/python3",
    )
    site.mkdir(parents=True)
    for source, arguments in (
        (
            "int lost(void) { return 7; }",
            ["-shared", "-fPIC", "-Wl,-soname,liblost.so.1", "-o", site / "liblost.so.1"],
        ),
        (
            "int lost(void); int main(void) { return lost(); }",
            ["-xnone", site / "liblost.so.1", "-o", place / "programs/loses"],
        ),
    ):
        subprocess.run(["cc", "-xc", "-", *arguments], input=source, text=True, check=True)
    (place / "bin/loses").symlink_to("../run")
    python.parent.mkdir()
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH={FOLDER}/site exec {sys.executable} "$@"\n', encoding="utf-8"
    )
    python.chmod(0o755)
    for libc in ("own", "packed"):
        which = {"MINITAW_LIBC": libc, "MINITAW_FOLDERS": ""}
        assert "liblost.so.1: cannot open" in packed("loses", code=127, **which)
    path = f"{python.parent}:{os.environ['PATH']}"
    packed("loses", code=7, PATH=path)


shutil.rmtree(FOLDER, ignore_errors=True)
for name in ("elsewhere", "build"):
    (FOLDER / name).mkdir(parents=True)
(FOLDER / "build/minitaw").symlink_to(
    BUILD / "minitaw"
)  # the other programs of a build are packed alike, and take their time
subprocess.run(
    [REPOSITORY / "scripts/pack", FOLDER / "packed", FOLDER / "build"],
    env=os.environ | {"XZ_OPT": "-0"},
    check=True,
)
subprocess.run(["tar", "-C", FOLDER / "elsewhere", "-xJf", FOLDER / "packed.tar.xz"], check=True)
shutil.rmtree(FOLDER / "packed")
for check in (
    programs_run_with_either_c_library,
    transports_of_another_ucx_are_not_loaded,
    the_c_library_is_chosen_by_its_age,
    a_library_of_a_python_package_is_found,
):
    check()
