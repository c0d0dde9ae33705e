# SPDX-License-Identifier: BSD-3-Clause
"""miniTaw in the EESSI test suite (eessi-testsuite 1.1 and newer, from PyPI): every module of that
name, schedule and scale of a site's configuration.

    reframe -C CONFIG-OF-THE-SITE.py -c examples/reframe/eessi_minitaw.py -r --tag 1_node

A rank is a NUMA domain or a GPU. The model grows with the ranks: two blocks and two micro-batches
for each.
"""

import reframe as rfm
import reframe.utility.sanity as sn
from eessi.testsuite.constants import COMPUTE_UNITS, DEVICE_TYPES, TAGS
from eessi.testsuite.eessi_mixin import EESSI_Mixin
from eessi.testsuite.utils import find_modules
from reframe.core.builtins import parameter, performance_function, run_after, sanity_function

INPUTS = "$(dirname $(command -v minitaw))/../share/minitaw/inputs"


@rfm.simple_test
class EESSI_miniTaw(rfm.RunOnlyRegressionTest, EESSI_Mixin):
    device_type = parameter([DEVICE_TYPES.CPU, DEVICE_TYPES.GPU])
    module_info = parameter(find_modules("(?i)^minitaw$"))
    # those of `minitaw help schedules` that run on more than one rank, and FSDP's other form
    schedule = parameter(
        ["ddp", "fsdp", "fsdp:hierarchical=on", "1f1b", "zb1", "zb2", "zbv", "weipipe", "tawpipe"]
    )
    tags = {TAGS.CI}
    sourcesdir = None
    readonly_files = [""]
    time_limit = "30m"
    executable = "minitaw"

    @run_after("init")
    def choose_unit(self):
        self.compute_unit = (
            COMPUTE_UNITS.GPU if self.device_type == DEVICE_TYPES.GPU else COMPUTE_UNITS.NUMA_NODE
        )

    def required_mem_per_node(self):
        """In MiB: the model below takes less than 100 on each rank, a device's libraries more."""
        return 1024 + 1024 * self.num_tasks_per_node

    @run_after("setup")
    def set_case(self):
        nodes = self.num_tasks // self.num_tasks_per_node
        sets = {
            "schedule": self.schedule,
            "ranks": self.num_tasks,
            "groups": nodes,
            "layers": 2 * self.num_tasks,
            "micro_batches": 2 * self.num_tasks,
            "data": "synthetic",
            "seq": 256,
        }
        self.executable_opts = [
            "run",
            f"{INPUTS}/quickstart.toml",
            *(f"--set {key}={value}" for key, value in sets.items()),
            "-o result.h5",
        ]

    @sanity_function
    def valid(self):
        return sn.assert_found(r"^RESULT: VALID", self.stdout, "the result is not valid")

    @performance_function("token/s")
    def tokens_per_s(self):
        return sn.extractsingle(r"^figure of merit: (\S+) tokens/s", self.stdout, 1, float)
