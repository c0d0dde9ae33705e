# SPDX-License-Identifier: BSD-3-Clause
"""Systems for ReFrame: `local` is the machine at hand, `cluster` one with Slurm. Copy it and write
in what yours has: partitions, modules, the PMI that the MPI speaks (srun --mpi=list), how GPUs are
asked for."""

ENVIRONMENT = {"name": "default", "cc": "cc", "cxx": "c++", "ftn": "", "nvcc": ""}

site_configuration = {
    "systems": [
        {
            "name": "local",
            "hostnames": [".*"],
            "partitions": [
                {
                    "name": "cpu",
                    "scheduler": "local",
                    "launcher": "mpiexec",
                    "environs": ["default"],
                    "env_vars": [["OMP_NUM_THREADS", "1"]],  # more ranks than cores
                    "max_jobs": 1,  # a neighbour would show in the times
                },
            ],
        },
        {
            "name": "cluster",
            "hostnames": [],  # chosen with --system=cluster
            "partitions": [
                {
                    "name": "cpu",
                    "scheduler": "squeue",  # `slurm` where there is accounting
                    "launcher": "srun",
                    "access": [],  # --partition=..., --account=...
                    "environs": ["default"],
                    "env_vars": [["SLURM_MPI_TYPE", "pmi2"]],
                },
                {
                    "name": "gpu",
                    "scheduler": "squeue",
                    "launcher": "srun",
                    "access": [],
                    "environs": ["default"],
                    "env_vars": [["SLURM_MPI_TYPE", "pmi2"]],
                    "features": ["gpu"],
                    "resources": [{"name": "gpu", "options": ["--gpus-per-node={count}"]}],
                },
            ],
        },
    ],
    "environments": [ENVIRONMENT],
}
