# SPDX-License-Identifier: BSD-3-Clause
"""miniTaw under ReFrame: every schedule on a deck, and a screening for slow ranks, nodes and links.
Sanity is the program's own verdict.

reframe -C examples/reframe/settings.py -c examples/reframe/minitaw_test.py -r
MINITAW=/path/to/minitaw reframe ...                  # a program that exists; else it is built with
CMake reframe ... --system=cluster -S ranks=16 -S ranks_per_node=8 -S
deck=inputs/small/strong-scaling.toml reframe ... --system=cluster --distribute=all -n
minitaw_screen -n tawpipe     # each node by itself, all of them
"""

import json
import os
import pathlib

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import (
    fixture,
    parameter,
    run_after,
    run_before,
    sanity_function,
    variable,
)

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]

# Those of `minitaw help schedules` that run on more than one rank, and FSDP's other form.
SCHEDULES = [
    "ddp",
    "fsdp",
    "fsdp:hierarchical=on",
    "1f1b",
    "zb1",
    "zb2",
    "zbv",
    "weipipe",
    "tawpipe",
]

# What a system is known to reach: tokens/s by schedule and case, rates by quantity of `screen`; a
# result may be so much slower (-0.1: a tenth), or any faster. Names of cases are those of ReFrame's
# report; a deck of one case has no brackets. Take the numbers from results that you trust:
# minitaw show RESULT.h5 --json, minitaw screen --json.
TOLERANCE = -0.1
REFERENCES = {
    # "cluster:cpu": {"tawpipe[seq=256]": 52000, "tawpipe[seq=512]": 47000, "matrix_product":
    # 1.1e12},
}

# Settings that tell cases apart.
SETTINGS = [
    "ranks",
    "groups",
    "replicas",
    "layers",
    "hidden",
    "dtype",
    "recompute",
    "seq",
    "micro_batch",
    "micro_batches",
]
# Of each case: column, units, column of the planned value, which it must equal.
FIGURES = [
    ("tokens_per_s", "token/s", ""),
    ("median_s", "s", ""),
    ("memory_measured", "B", ""),
    ("bytes_between", "B", "planned_between"),
]


def labels_of(cases):
    """For each case "[seq=256]": the settings in which they differ."""
    told = [name for name in SETTINGS if len({case[name] for case in cases}) > 1]
    words = [",".join(f"{name}={case[name]}" for name in told) for case in cases]
    return [f"[{text}]" if text else "" for text in words]


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
            self.build_system.config_opts += ["-DMINITAW_BACKEND=CUDA", "-DMINITAW_NATIVE=OFF"]
        self.build_system.make_opts = ["minitaw"]
        self.build_system.max_concurrency = os.cpu_count()

    @sanity_function
    def exists(self):
        return sn.path_exists(self.program)


class minitaw_job(rfm.RunOnlyRegressionTest):
    """A verb on some ranks; by default they fit one node, so that --distribute may give each node a
    job."""

    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    build = fixture(minitaw_build, scope="environment")
    ranks = variable(int, value=4)
    ranks_per_node = variable(int, value=4)
    time_limit = "30m"

    @run_after("setup")
    def place(self):
        self.num_tasks = self.ranks
        self.num_tasks_per_node = min(self.ranks, self.ranks_per_node)
        if "gpu" in self.current_partition.features:
            self.extra_resources = {"gpu": {"count": self.num_tasks_per_node}}

    def read(self, name):
        return json.loads((pathlib.Path(self.stagedir) / name).read_text(encoding="utf-8"))

    def expect(self, name):
        """Reference of a rate, where somebody has said what to expect."""
        expected = REFERENCES.get(self.current_partition.fullname, {}).get(name)
        return (expected, TOLERANCE, None) if expected else None


@rfm.simple_test
class minitaw_schedule(minitaw_job):
    """One schedule on one deck; the other keys of the deck stay as they are."""

    schedule = parameter(SCHEDULES)
    deck = variable(str, value="inputs/quickstart.toml")
    overrides = variable(str, value="")  # further KEY=VALUE, separated by spaces
    keep_files = ["result.h5", "result.json"]

    @run_before("run")
    def call(self):
        """Not every scheduler tells exit codes, so the job says that of `run`; `show` brings the
        record as JSON."""
        sets = [f"schedule={self.schedule}", f"ranks={self.ranks}", *self.overrides.split()]
        self.executable = self.build.program
        self.executable_opts = [
            "run",
            str(REPOSITORY / self.deck),
            *(f"--set={each}" for each in sets),
            "-o",
            "result.h5",
        ]
        self.prerun_cmds = ["rm -f result.h5"]
        self.postrun_cmds = [
            "echo exit code $?",
            f"{self.build.program} show result.h5 --json > result.json",
        ]

    @sanity_function
    def valid(self):
        return sn.all(
            [
                sn.assert_found(r"^RESULT: VALID", self.stdout, "the result is not valid"),
                sn.assert_found(r"^exit code 0$", self.stdout, "run has not ended with 0"),
                sn.assert_gt(sn.len(self.cases()), 0, "no case in the record"),
            ]
        )

    @sn.deferrable
    def cases(self):
        """Columns of each run by name."""
        return self.read("result.json")["runs"]

    @run_before("performance")
    def figures(self):
        """Of every case by itself. Bytes are what was planned, on every system; throughput where
        somebody has said what to expect. Memory has a slack beyond its plan (docs/results.md),
        which the verdict of `run` judges."""
        if self.is_dry_run():
            return
        here, cases = {}, self.cases().evaluate()
        for case, label in zip(cases, labels_of(cases)):
            for name, units, planned in FIGURES:
                self.perf_variables[name + label] = sn.make_performance_function(
                    sn.defer(case[name]), units
                )
                if planned:
                    here[name + label] = (case[planned], 0, 0, units)
            if expected := self.expect(self.schedule + label):
                here[f"tokens_per_s{label}"] = (*expected, "token/s")
        self.reference = {self.current_partition.fullname: here}


@rfm.simple_test
class minitaw_screen(minitaw_job):
    """Every rank of a job and every link between them measured by itself: nothing may be slower
    than its peers."""

    rounds = variable(int, value=3)
    seconds = variable(float, value=0.1)
    keep_files = ["screen.json"]

    @run_before("run")
    def call(self):
        self.executable = self.build.program
        self.executable_opts = [
            "screen",
            "--json",
            f"--rounds={self.rounds}",
            f"--seconds={self.seconds}",
            "> screen.json",
        ]

    @sanity_function
    def clean(self):
        found = self.read("screen.json")
        culprits = "; ".join(culprit["text"] for culprit in found["culprits"])
        return sn.assert_true(
            found["verdict"].startswith("CLEAN"),
            f"{found['verdict']}: {culprits}",
        )

    @run_before("performance")
    def rates(self):
        """The lowest rate, or the highest latency, of all ranks, pairs and rounds."""
        if self.is_dry_run():
            return
        here = {}
        for quantity in self.read("screen.json")["quantities"]:
            name, units = quantity["name"].replace(",", "").replace(" ", "_"), quantity["units"]
            worst = quantity["highest" if units == "s" else "lowest"]
            self.perf_variables[name] = sn.make_performance_function(sn.defer(worst), units)
            if expected := self.expect(name):
                here[name] = (*expected, units)
        self.reference = {self.current_partition.fullname: here}
