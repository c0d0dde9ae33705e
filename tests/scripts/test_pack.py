# SPDX-License-Identifier: BSD-3-Clause
"""scripts/pack: the packed programs run in another folder, with this machine's C library and with
the packed one."""

import os
import pathlib

import pytest
from programs import MINITAW, REPOSITORY, call, says


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """Of the program alone: others are packed alike, and take their time. So does xz, whose place
    `cat` takes."""
    folder = tmp_path_factory.mktemp("pack")
    for name in ("build/bin", "bin", "elsewhere"):
        (folder / name).mkdir(parents=True)
    (folder / "build/bin/minitaw").symlink_to(MINITAW)
    (folder / "bin/xz").write_text("#!/bin/sh\nexec cat\n")
    (folder / "bin/xz").chmod(0o755)
    pack = [REPOSITORY / "scripts/pack", folder / "packed", folder / "build"]
    call(*pack, env=os.environ | {"PATH": f"{folder}/bin:{os.environ['PATH']}"}, check=True)
    call("tar", "-C", folder / "elsewhere", "-xf", folder / "packed.tar.xz", check=True)
    (folder / "packed").rename(folder / "gone")
    return folder / "elsewhere/packed"


@pytest.mark.parametrize("libc", ["own", "packed"])
def test_programs_run_with_either_c_library(libc, packed):
    which = os.environ | {"MINITAW_LIBC": libc, "MINITAW_FOLDERS": "", "LD_DEBUG": "files"}
    words = "minitaw run inputs/gpu/step.toml --set schedule=ddp --set ranks=2 -o".split()
    file = pathlib.Path("ranks.h5").absolute()
    done = call(packed / "run", "mpiexec", "-n", "2", *words, file, cwd="/", env=which)
    assert "RESULT: VALID" in done.stdout and file.exists(), done
    says(done.stderr, f"calling init: {packed}/lib/libmpich.so")
    assert (f"calling init: {packed}/libc/libc.so.6" in done.stderr) == (libc == "packed")


def test_the_c_library_is_chosen_by_its_age(packed):
    needed = packed / "libc/needed"
    assert needed.read_text().startswith("2.")
    for version, chosen in (("2.5", "own"), ("2.9999", "packed")):
        needed.write_text(version + "\n")
        assert call(packed / "run", "sh", "-c", "echo $MINITAW_LIBC").stdout == f"{chosen}\n"
