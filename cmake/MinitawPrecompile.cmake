# SPDX-License-Identifier: BSD-3-Clause
# minitaw_precompile(plain|kokkos|plain_tests|kokkos_tests target ...)
#
# The targets share one precompiled header of what is large and most of their files read. Headers
# that instantiate much at the end of every file (chrono, filesystem, nlohmann/json) save nothing
# there.
function(minitaw_add_precompiled name libraries)  # header ...
  set(source ${PROJECT_BINARY_DIR}/precompiled/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "" ESCAPE_QUOTES)
  add_library(minitaw_precompiled_${name} OBJECT EXCLUDE_FROM_ALL ${source})
  target_link_libraries(minitaw_precompiled_${name} PRIVATE minitaw_options fmt::fmt ${libraries})
  target_precompile_headers(
    minitaw_precompiled_${name} PRIVATE ${ARGN} <fmt/format.h> <fmt/ranges.h>)
  if(name MATCHES "tests$")
    minitaw_compile_as_test(minitaw_precompiled_${name})
  endif()
endfunction()

if(MINITAW_PRECOMPILE AND NOT MINITAW_DEVICE)  # device compilers cannot read them
  minitaw_add_precompiled(
    plain "" <algorithm> <functional> <map> <numeric> <set> <string> <variant> <vector>)
  if(MINITAW_TESTS)
    minitaw_add_precompiled(plain_tests GTest::gmock <gmock/gmock.h> <gtest/gtest.h>)
  endif()
  minitaw_add_precompiled(kokkos Kokkos::kokkos <Kokkos_Core.hpp>)
  if(MINITAW_TESTS)
    minitaw_add_precompiled(
      kokkos_tests "GTest::gmock;Kokkos::kokkos" <Kokkos_Core.hpp> <gmock/gmock.h>
      <gtest/gtest.h>)
  endif()
endif()

function(minitaw_precompile name)
  foreach(target IN LISTS ARGN)
    if(TARGET ${target} AND TARGET minitaw_precompiled_${name})
      target_precompile_headers(${target} REUSE_FROM minitaw_precompiled_${name})
      # without it ccache cannot tell which header was used
      target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
    endif()
  endforeach()
endfunction()
