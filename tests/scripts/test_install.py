# SPDX-License-Identifier: BSD-3-Clause
"""What is installed works where it is."""

import pathlib

from programs import BUILD, REPOSITORY, SAMPLE, call, output_of


def test_installed_commands_start():
    call("cmake", "--install", BUILD, "--prefix", "there", check=True)
    there = pathlib.Path("there").absolute()
    commands = {path.name.removeprefix("minitaw-") for path in there.glob("bin/minitaw-*")}
    package = REPOSITORY.glob("scripts/*")
    ours = {p.name for p in package if p.is_file() and "minitaw.command" in p.read_text()}
    assert commands >= ours > {"compare", "plot"}
    assert "--launch" in output_of(call(there / "bin/minitaw-fit-machine", "--help"))
    assert "none of small" in call(there / "bin/minitaw-check-rules", SAMPLE).stdout
    said = call(
        there / "bin/minitaw", "plan", there / "share/minitaw/inputs/verify.toml", "--set=ranks=2"
    )
    assert said.returncode == 0, said
