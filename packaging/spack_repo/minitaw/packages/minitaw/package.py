# SPDX-License-Identifier: BSD-3-Clause
# Spack's recipe for miniTaw, kept beside the sources that it builds:
#   spack repo add packaging/spack_repo/minitaw
#   spack install minitaw +simgrid                               processors; with minitaw predict
#   spack install minitaw +cuda cuda_arch=90 +nccl               devices
# `main` is a clone of the checkout that holds this file; what is not committed is built by
#   spack develop --path . minitaw@main

import pathlib

from spack.package import *
from spack_repo.builtin.build_systems.cmake import CMakePackage, generator
from spack_repo.builtin.build_systems.cuda import CudaPackage


class Minitaw(CMakePackage, CudaPackage):
    """Weight-pipelined training schedules (TawPipe, WeiPipe) and their rivals (FSDP, 1F1B, zero
    bubble), measured alike: throughput, memory and bytes moved, with a verdict."""

    git = pathlib.Path(__file__).resolve().parents[5].as_uri()

    license("BSD-3-Clause", checked_by="minitaw")

    version("main", branch="main")

    variant("nccl", default=True, when="+cuda", description="Move data between devices by NCCL")
    variant("cudnn", default=False, when="+cuda", description="Attention in bf16 by cuDNN")
    variant("simgrid", default=False, description="Predict steps on other machines by SimGrid")
    variant("python", default=True, description="Libraries of minitaw-report and its siblings")
    variant(
        "benchmarks", default=False, description="Build minitaw_kernels, the rates of all kernels"
    )

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    generator("ninja")

    depends_on("mpi")
    depends_on("kokkos@4.6:5 +openmp cxxstd=20", when="~cuda")
    depends_on("blas", when="~cuda")
    # OpenBLAS with threads of its own would fight with those of Kokkos.
    requires("^openblas threads=openmp", when="~cuda ^[virtuals=blas] openblas")
    depends_on("hwloc@2.1:2")
    depends_on("hdf5")
    depends_on("zlib-api")
    depends_on("tomlplusplus")
    depends_on("cli11")
    depends_on("nlohmann-json")
    depends_on("fmt")
    depends_on("simgrid@4:", when="+simgrid")
    depends_on("benchmark", when="+benchmarks")
    depends_on("googletest +gmock", type="test")
    depends_on("python@3.11:", type="test")
    depends_on("python@3.11:", type="run", when="+python")
    for library in ("py-pandas", "py-h5py", "py-scipy", "py-matplotlib", "py-jinja2"):
        depends_on(library, type=("run", "test"), when="+python")

    with when("+cuda"):
        depends_on("cuda@12:")
        for arch in CudaPackage.cuda_arch_values:
            depends_on(
                f"kokkos@4.6:5 +openmp +cuda +wrapper cuda_arch={arch} cxxstd=20",
                when=f"cuda_arch={arch}",
            )
        depends_on("nccl", when="+nccl")
        depends_on("cudnn@9:", when="+cudnn")
        resource(
            name="cudnn-frontend",  # headers, which Spack has no package for
            git="https://github.com/NVIDIA/cudnn-frontend.git",
            tag="v1.14.0",
            when="+cudnn",
            placement="cudnn-frontend",
        )
        conflicts("cuda_arch=none", msg="say for which devices: cuda_arch=90, for example")

    def cmake_args(self):
        options = [
            self.define("MINITAW_NATIVE", False),  # Spack's compiler says for which processor
            self.define("MINITAW_TESTS", self.run_tests),
            self.define_from_variant("MINITAW_BENCHMARKS", "benchmarks"),
            self.define("MINITAW_BACKEND", "CUDA" if self.spec.satisfies("+cuda") else ""),
            self.define_from_variant("MINITAW_PREDICT", "simgrid"),
        ]
        if self.spec.satisfies("+cuda"):
            options += [
                self.define_from_variant("MINITAW_CUDNN", "cudnn"),
                self.define_from_variant("MINITAW_NCCL", "nccl"),
            ]
        if self.spec.satisfies("+cudnn"):
            frontend = join_path(self.stage.source_path, "cudnn-frontend")
            options.append(self.define("CUDNN_FRONTEND_ROOT", frontend))
        return options

    def test_run(self):
        """two ranks run a small deck, and the result is valid"""
        mpiexec = which(self.spec["mpi"].prefix.bin.mpiexec, required=True)
        call = [self.prefix.bin.minitaw, "run", "-o", "result.h5"]
        call.append(self.prefix.share.minitaw.inputs.small.join("table.toml"))
        for key in ("ranks=2", "layers=2", "hidden=32", "seq=16", "schedule=tawpipe,fsdp"):
            call += ["--set", key]
        said = mpiexec("-n", "2", *call, output=str)
        assert "RESULT: VALID" in said, said
        if self.spec.satisfies("+python"):
            Executable(self.prefix.bin.join("minitaw-report"))("result.h5", "-o", "report.html")
