#pragma once

#include <string>
#include <vector>

namespace minitaw::app {

/// Name, version and make of everything that takes part in a run: "HDF5 1.14.5", "BLAS OpenBLAS 0.3.29 ...",
/// "OpenMP 201511 (libgomp.so.1)". What the program was built with, unless the library itself can say more.
[[nodiscard]] std::vector<std::string> library_texts();

/// Version and back end of Kokkos.
[[nodiscard]] std::string kokkos_version();

}  // namespace minitaw::app
