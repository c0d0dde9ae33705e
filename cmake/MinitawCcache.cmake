# SPDX-License-Identifier: BSD-3-Clause
# Compile through ccache where it is installed; precompiled headers need its permission to ignore time stamps. Not for
# CUDA: there Kokkos puts its own launcher before every command, which hands what is not the compiler to the host.
find_program(MINITAW_CCACHE ccache)
if(MINITAW_CCACHE AND NOT Kokkos_ENABLE_CUDA AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_DEPEND=1 ${MINITAW_CCACHE})
endif()
