# SPDX-License-Identifier: BSD-3-Clause
"""miniTaw for Ramble: a schedule on a deck, or a screening of the machine. ramble.yaml beside the
repository uses it.

Figures of merit come from the record (docs/results.md), which the second executable prints; a step
of one case is one experiment.
"""

from ramble.appkit import *


class Minitaw(ExecutableApplication):
    """Schedules of distributed training (TawPipe, WeiPipe, FSDP, pipelines) with the same kernels,
    measured alike."""

    name = "minitaw"

    tags("mini-app", "machine-learning", "training", "mpi", "c++", "kokkos")

    define_compiler("gcc", pkg_spec="gcc", package_manager="spack*")
    software_spec("minitaw", pkg_spec="minitaw@main", compiler="gcc", package_manager="spack*")
    required_package("minitaw", package_manager="spack*")

    case = "--set schedule={schedule} --set seq={seq} --set ranks={n_ranks}"
    executable(
        "run",
        f"{{minitaw_path}}/bin/minitaw run {{deck}} -o {{result}} {case} {{options}}",
        use_mpi=True,
    )
    executable("record", "{minitaw_path}/bin/minitaw show {result} --json", use_mpi=False)
    executable("screen", "{minitaw_path}/bin/minitaw screen --rounds {rounds}", use_mpi=True)
    workload("train", executables=["run", "record"])
    workload("screen", executables=["screen"])

    workload_variable(
        "deck",
        default="{minitaw_path}/share/minitaw/inputs/quickstart.toml",
        description="Deck of the case",
        workloads=["train"],
    )
    workload_variable(
        "schedule",
        default="tawpipe",
        description="A name of `minitaw help schedules`, with options",
        workloads=["train"],
    )
    workload_variable("seq", default="256", description="Tokens of a sequence", workloads=["train"])
    workload_variable(
        "options", default="", description="More options of `minitaw run`", workloads=["train"]
    )
    workload_variable(
        "result",
        default="{experiment_run_dir}/result.h5",
        description="Result file",
        workloads=["train"],
    )
    workload_variable(
        "rounds", default="3", description="How often everything is measured", workloads=["screen"]
    )

    log = "{experiment_run_dir}/{experiment_name}.out"
    number = r"(?P<value>[-+.e\d]+)"
    for figure, column, units in (
        ("rate", "tokens_per_s", "token/s"),
        ("step", "median_s", "s"),
        ("memory of the worst rank", "memory_measured", "B"),
        ("between groups", "bytes_between", "B"),
        ("exposed", "exposed_share", ""),
        ("idle", "idle_share", ""),
    ):
        figure_of_merit(
            figure,
            fom_regex=rf'\s*"{column}": {number}',
            group_name="value",
            units=units,
            log_file=log,
        )
    figure_of_merit(
        "verdict",
        fom_regex=r"(RESULT|VERDICT): (?P<verdict>.*)",
        group_name="verdict",
        units="",
        log_file=log,
    )
    figure_of_merit(
        "commit",
        fom_regex=r"# minitaw \S+ \((?P<commit>[0-9a-f]+(-dirty)?)",
        group_name="commit",
        units="",
        log_file=log,
    )

    success_criteria("valid", mode="string", match=r"(RESULT: VALID|VERDICT: CLEAN).*", file=log)
