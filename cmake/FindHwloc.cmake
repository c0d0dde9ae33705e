# SPDX-License-Identifier: BSD-3-Clause
# hwloc's package file is pkg-config's alone: finds Hwloc::Hwloc by header and library. Version 2.1 is the first whose parts can be left out.
find_path(Hwloc_INCLUDE_DIR hwloc.h)
find_library(Hwloc_LIBRARY hwloc)
if(Hwloc_INCLUDE_DIR)
  file(STRINGS "${Hwloc_INCLUDE_DIR}/hwloc.h" version REGEX "define HWLOC_API_VERSION 0x0002" LIMIT_COUNT 1)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Hwloc REQUIRED_VARS Hwloc_LIBRARY Hwloc_INCLUDE_DIR version)
if(Hwloc_FOUND AND NOT TARGET Hwloc::Hwloc)
  add_library(Hwloc::Hwloc UNKNOWN IMPORTED)
  set_target_properties(Hwloc::Hwloc PROPERTIES IMPORTED_LOCATION "${Hwloc_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${Hwloc_INCLUDE_DIR}")
endif()
mark_as_advanced(Hwloc_INCLUDE_DIR Hwloc_LIBRARY)
