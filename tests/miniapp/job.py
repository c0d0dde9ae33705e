# SPDX-License-Identifier: BSD-3-Clause
"""The program under mpiexec, as check_job.py and check_verify.py call it: with mpiexec, its -n
flag, the program, a folder to write to, and more of their own."""

import json
import pathlib
import shutil
import sys

import programs

MPIEXEC, NUMBER, PROGRAM, FOLDER, *MORE = sys.argv[1:]
FOLDER = pathlib.Path(FOLDER)
DECK = FOLDER / "job.toml"

TEXT = (
    'schedule = ["tawpipe", "ddp"]\nranks = [2, 3]\ngroups = [1, "1+1", "1+2"]\nlayers = 4\n'
    "hidden = 16\nheads = 2\nffn = 24\n"
    'vocab = 256\ndata = "/usr/share/common-licenses/GPL-3"\nseq = [9, 20]\nmicro_batches = 6\n'
    "steps = 3\nwarmup = 1\n"
)


def call(ranks, *arguments, variables=(), program=PROGRAM):
    """On as many ranks, with these variables in the environment: "NAME=VALUE"."""
    command = [MPIEXEC, NUMBER, ranks, "env", *variables, program, *arguments]
    return programs.call(*command, cwd=FOLDER)


def rows(file):
    """Runs in the file, as a user reads them."""
    done = programs.call(PROGRAM, "show", file, "--json")
    said = json.loads(done.stdout)
    programs.output_of(done, code=0 if said["verdict"].startswith("VALID") else 1)
    return said["runs"]


shutil.rmtree(FOLDER, ignore_errors=True)
FOLDER.mkdir(parents=True)
DECK.write_text(TEXT, encoding="utf-8")
