# SPDX-License-Identifier: BSD-3-Clause
"""miniTaw under ReFrame: every schedule on a deck; sanity is the program's own verdict, performance comes from the record.

    reframe -C examples/reframe/settings.py -c examples/reframe/minitaw_test.py -r
    MINITAW=/path/to/minitaw reframe ...                  # a program that exists; else it is built with CMake
    reframe ... --system=cluster -S ranks=16 -S ranks_per_node=8 -S deck=inputs/small/strong-scaling.toml
"""

import json
import os
import pathlib

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import (
    fixture,
    parameter,
    performance_function,
    run_after,
    run_before,
    sanity_function,
    variable,
)

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]

# What a system is known to reach, in tokens/s, by schedule; a result may be so much slower (-0.1: a tenth), or any faster.
# Take the numbers from a result that you trust: minitaw show RESULT.h5 --json.
TOLERANCE = -0.1
REFERENCES = {
    # "cluster:cpu": {"tawpipe": 52000, "fsdp": 47000},
}


class minitaw_build(rfm.CompileOnlyRegressionTest):
    """The program: that of MINITAW, or a build of this repository."""

    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    program = variable(str, value=os.environ.get("MINITAW", ""))
    build_system = "CMake"
    sourcesdir = None

    @run_before("compile")
    def choose(self):
        if self.program:
            self.program = str(pathlib.Path(self.program).resolve())
            self.build_system = "CustomBuild"
            self.build_system.commands = [f"{self.program} --version"]
            return
        self.program = str(pathlib.Path(self.stagedir) / "build" / "minitaw")
        self.build_system.configuredir = str(REPOSITORY)
        self.build_system.builddir = "build"
        self.build_system.config_opts = ["-DMINITAW_TESTS=OFF", "-DMINITAW_BENCHMARKS=OFF"]
        if "gpu" in self.current_partition.features:
            self.build_system.config_opts += ["-DMINITAW_CUDA=ON", "-DMINITAW_NATIVE=OFF"]
        self.build_system.make_opts = ["minitaw"]
        self.build_system.max_concurrency = os.cpu_count()

    @sanity_function
    def exists(self):
        return sn.path_exists(self.program)


@rfm.simple_test
class minitaw_schedule(rfm.RunOnlyRegressionTest):
    """One schedule on one deck; the other keys of the deck stay as they are."""

    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    build = fixture(minitaw_build, scope="environment")
    schedule = parameter(["1f1b", "zb1", "zb2", "fsdp", "weipipe", "tawpipe"])
    deck = variable(str, value="inputs/quickstart.toml")
    overrides = variable(str, value="")  # further KEY=VALUE, separated by spaces
    ranks = variable(int, value=4)
    ranks_per_node = variable(int, value=4)
    time_limit = "30m"
    keep_files = ["result.h5", "result.json"]

    @run_after("setup")
    def place(self):
        self.num_tasks = self.ranks
        self.num_tasks_per_node = self.ranks_per_node
        if "gpu" in self.current_partition.features:
            self.extra_resources = {"gpu": {"count": self.ranks_per_node}}

    @run_before("run")
    def call(self):
        """Not every scheduler tells exit codes, so the job says that of `run`; `show` brings the record as JSON."""
        sets = [f"schedule={self.schedule}", f"ranks={self.ranks}", *self.overrides.split()]
        self.executable = self.build.program
        self.executable_opts = ["run", str(REPOSITORY / self.deck), *(f"--set={each}" for each in sets), "-o", "result.h5"]
        self.prerun_cmds = ["rm -f result.h5"]
        self.postrun_cmds = ["echo exit code $?", f"{self.build.program} show result.h5 --json > result.json"]

    @sanity_function
    def valid(self):
        return sn.all([sn.assert_found(r"^RESULT: VALID", self.stdout, "the result is not valid"),
                       sn.assert_found(r"^exit code 0$", self.stdout, "run has not ended with 0"),
                       sn.assert_gt(sn.len(self.cases()), 0, "no case in the record")])

    @sn.deferrable
    def cases(self):
        """Columns of each case by name; `show` writes the unit behind it."""
        text = (pathlib.Path(self.stagedir) / "result.json").read_text(encoding="utf-8")
        return [{name.split(" [")[0]: value for name, value in case.items()} for case in json.loads(text)]

    @sn.deferrable
    def best(self, column):
        """Of the case that makes the figure of merit."""
        return max(self.cases().evaluate(), key=lambda case: case["tokens_per_s"] or 0)[column]

    @performance_function("token/s")
    def tokens_per_s(self):
        return self.best("tokens_per_s")

    @performance_function("s")
    def step(self):
        return self.best("median_s")

    @performance_function("B")
    def memory(self):
        return self.best("memory_measured")

    @performance_function("B")
    def bytes_between(self):
        return self.best("bytes_between")

    @run_before("performance")
    def refer(self):
        """Memory and bytes are what was planned, on every system; throughput where somebody has said what to expect."""
        if self.is_dry_run():
            return
        here = {"memory": (self.best("memory_planned").evaluate(), 0, 0, "B"),
                "bytes_between": (self.best("planned_between").evaluate(), 0, 0, "B")}
        expected = REFERENCES.get(self.current_partition.fullname, {}).get(self.schedule)
        if expected:
            here["tokens_per_s"] = (expected, TOLERANCE, None, "token/s")
        self.reference = {self.current_partition.fullname: here}
