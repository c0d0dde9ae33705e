# find_package for every library, with one plain sentence when one is missing.

# minitaw_require(NAME PURPOSE PACKAGE [find_package arguments ...])
macro(minitaw_require name purpose package)
  find_package(${name} ${ARGN} QUIET)
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "miniTaw needs ${name} for ${purpose}, and CMake does not find it: install it (Debian: ${package}), "
                        "name its folder with -D${name}_ROOT=..., or build inside scripts/env, which brings everything.")
  endif()
endmacro()

minitaw_require(fmt "text" libfmt-dev CONFIG)
minitaw_require(tomlplusplus "decks" libtomlplusplus-dev CONFIG)
minitaw_require(CLI11 "the command line" libcli11-dev CONFIG)
minitaw_require(nlohmann_json "JSON output" nlohmann-json3-dev CONFIG)
minitaw_require(HDF5 "result files" libhdf5-dev COMPONENTS C)
minitaw_require(Threads "communication lanes" libc6-dev)

if(NOT MINITAW_PLAIN_ONLY)
  minitaw_require(Kokkos "kernels" "libkokkos-dev, version 4.6 to 5" 4.6...<6 CONFIG)
  minitaw_require(MPI "communication" libmpich-dev COMPONENTS CXX)
  include(MinitawDevices)
  if(NOT MINITAW_DEVICE)
    minitaw_require(BLAS "matrix products" libopenblas-openmp-dev)
  endif()
endif()
if(MINITAW_TESTS)
  minitaw_require(GTest "the tests" "libgtest-dev and libgmock-dev")
endif()
