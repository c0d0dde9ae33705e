# SPDX-License-Identifier: BSD-3-Clause
# The vendor parts of a device build. Kokkos decides which device it is; each vendor library is an option that is
# AUTO (used where found), ON (must be found) or OFF. What is missing is replaced by a portable version, or, for
# NCCL, simply not offered. Sets MINITAW_HAVE_<NAME>. (NVML is no matter of the build: src/topology opens it at run time.)

set(MINITAW_DEVICE "")
foreach(backend CUDA HIP SYCL)
  if(Kokkos_ENABLE_${backend})
    set(MINITAW_DEVICE ${backend})
  endif()
endforeach()

if(MINITAW_BACKEND AND NOT MINITAW_DEVICE STREQUAL MINITAW_BACKEND)
  message(FATAL_ERROR "MINITAW_BACKEND = ${MINITAW_BACKEND} needs a Kokkos built with it, but the one in ${Kokkos_DIR} was built for "
                      "${Kokkos_DEVICES}: load or build one (Spack: kokkos +cuda, +rocm) and name its folder with -DKokkos_ROOT=...")
endif()

# nvcc 13 places members behind a [[no_unique_address]] one elsewhere on the device than g++ does on the host, so that Views
# (mdspan) reach kernels damaged. This switches the attribute off; Kokkos itself must be built with it, too (docs/gpu.md).
if(MINITAW_DEVICE STREQUAL "CUDA")
  target_compile_definitions(Kokkos::kokkoscore INTERFACE MDSPAN_IMPL_USE_ATTRIBUTE_NO_UNIQUE_ADDRESS=1)
endif()

# A host function called from device code compiles, and then fails where nobody looks: nvcc only warns.
if(MINITAW_DEVICE STREQUAL "CUDA")
  foreach(number 20011 20012 20013 20014 20015)
    target_compile_options(Kokkos::kokkoscore INTERFACE "SHELL:-Xcudafe --diag_error=${number}")
  endforeach()
  # nvcc hands g++ a pointer to a member in parentheses of its own: double (Event::*value).
  target_compile_options(Kokkos::kokkoscore INTERFACE -Wno-parentheses)
endif()

# minitaw_vendor(NAME PURPOSE HINT [INCLUDES variable ...] [LIBRARIES variable ...]): decides MINITAW_HAVE_<NAME> from option
# MINITAW_<NAME> and whether all that these cache variables look for was found, and names what was not; minitaw_<name> brings them.
function(minitaw_vendor name purpose hint)
  cmake_parse_arguments(arg "" "" "INCLUDES;LIBRARIES" ${ARGN})
  set(missing "")
  foreach(part IN LISTS arg_INCLUDES arg_LIBRARIES)
    if(NOT ${part})  # ...-NOTFOUND
      get_property(file CACHE ${part} PROPERTY HELPSTRING)
      list(APPEND missing ${file})
    endif()
  endforeach()
  list(JOIN missing ", " missing)
  set(have OFF)
  set(lacks "")
  if(MINITAW_${name} AND missing STREQUAL "")  # AUTO is true, too
    set(have ON)
  elseif(MINITAW_${name} STREQUAL "ON")
    message(FATAL_ERROR "MINITAW_${name} = ON: CMake does not find ${missing}; ${hint}, or set it to AUTO to build without (${purpose})")
  elseif(MINITAW_${name})
    set(lacks "; not found: ${missing}")
  endif()
  set(MINITAW_HAVE_${name} ${have} PARENT_SCOPE)
  message(STATUS "${name}: ${have} (${purpose}${lacks})")
  if(have)
    string(TOLOWER ${name} target)
    add_library(minitaw_${target} INTERFACE)
    foreach(part IN LISTS arg_INCLUDES)
      target_include_directories(minitaw_${target} SYSTEM INTERFACE ${${part}})
    endforeach()
    foreach(part IN LISTS arg_LIBRARIES)
      target_link_libraries(minitaw_${target} INTERFACE ${${part}})
    endforeach()
    target_link_libraries(minitaw_${target} INTERFACE ${MINITAW_RUNTIME})
  endif()
endfunction()

foreach(name CUDNN NCCL)
  set(MINITAW_${name} AUTO CACHE STRING "Use ${name} in a build for devices: AUTO, ON or OFF")
  set_property(CACHE MINITAW_${name} PROPERTY STRINGS AUTO ON OFF)
  set(MINITAW_HAVE_${name} OFF)
endforeach()

# A root that is named comes first, for header and library. NVIDIA's Python packages have libraries by their versions only.
macro(minitaw_find_header variable root file)
  find_path(${variable} ${file} HINTS ${${root}} ENV ${root} ${toolkit} PATH_SUFFIXES include DOC ${file})
endmacro()
macro(minitaw_find_library variable root file version)
  find_library(${variable} NAMES ${file} ${file}.${version} NAMES_PER_DIR HINTS ${${root}} ENV ${root} ${toolkit} PATH_SUFFIXES lib64 lib DOC ${file})
endmacro()

# minitaw_find_nccl(HEADER LIBRARY VERSION): NCCL, or AMD's RCCL, which has its names. A header of a version that lacks ncclCommSplit counts
# as not found.
macro(minitaw_find_nccl header library version)
  minitaw_find_header(MINITAW_NCCL_INCLUDE NCCL_ROOT ${header})
  minitaw_find_library(MINITAW_NCCL_LIBRARY NCCL_ROOT ${library} ${version})
  if(MINITAW_NCCL_INCLUDE)
    file(STRINGS ${MINITAW_NCCL_INCLUDE}/${header} nccl_version REGEX "define NCCL_VERSION_CODE [0-9]+")
    if(nccl_version MATCHES "[0-9]+$" AND CMAKE_MATCH_0 LESS 21800)
      set(MINITAW_NCCL_INCLUDE NOTFOUND CACHE PATH "${header} of version 2.18 or newer" FORCE)
    endif()
  endif()
  minitaw_vendor(NCCL "communication between devices; else MPI" "name its folder with -DNCCL_ROOT=..."
                 INCLUDES MINITAW_NCCL_INCLUDE LIBRARIES MINITAW_NCCL_LIBRARY)
endmacro()

if(MINITAW_DEVICE STREQUAL "HIP")
  find_package(rocblas REQUIRED)
  set(MINITAW_RUNTIME hip::host)
  minitaw_find_nccl(rccl/rccl.h librccl.so 1)
elseif(MINITAW_DEVICE STREQUAL "CUDA")
  find_package(CUDAToolkit REQUIRED)
  set(MINITAW_RUNTIME CUDA::cudart)
  set(toolkit ${CUDAToolkit_INCLUDE_DIRS} ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_TARGET_DIR})
  minitaw_find_header(MINITAW_CUDNN_INCLUDE CUDNN_ROOT cudnn.h)
  minitaw_find_library(MINITAW_CUDNN_LIBRARY CUDNN_ROOT libcudnn.so 9)
  minitaw_find_header(MINITAW_CUDNN_FRONTEND_INCLUDE CUDNN_FRONTEND_ROOT cudnn_frontend.h)
  minitaw_find_header(MINITAW_NVRTC_INCLUDE NVRTC_ROOT nvrtc.h)
  minitaw_vendor(CUDNN "attention in bf16; else the portable kernel"
                 "it needs cuDNN 9 (-DCUDNN_ROOT=...), the headers of cudnn-frontend (-DCUDNN_FRONTEND_ROOT=...) and NVRTC's (-DNVRTC_ROOT=...)"
                 INCLUDES MINITAW_CUDNN_INCLUDE MINITAW_CUDNN_FRONTEND_INCLUDE MINITAW_NVRTC_INCLUDE LIBRARIES MINITAW_CUDNN_LIBRARY)
  minitaw_find_nccl(nccl.h libnccl.so 2)
endif()

# What this MPI can be asked about the build's kind of device memory, as definitions.
set(MINITAW_MPI_DEVICE_DEFINITIONS "")
include(CheckCXXSourceCompiles)
function(minitaw_probe_mpi definition value call)
  set(CMAKE_REQUIRED_LIBRARIES MPI::MPI_CXX)
  check_cxx_source_compiles("
    #include <mpi.h>
    #if __has_include(<mpi-ext.h>)
    #include <mpi-ext.h>
    #endif
    int main() { int supported = 0; (void)supported; return ${call}; }" ${definition})
  if(${definition})
    set(MINITAW_MPI_DEVICE_DEFINITIONS ${MINITAW_MPI_DEVICE_DEFINITIONS} ${definition}=${value} PARENT_SCOPE)
  endif()
endfunction()
set(names_CUDA cuda CUDA)
set(names_HIP rocm HIP)
set(names_SYCL none ZE)
if(MINITAW_DEVICE)
  list(GET names_${MINITAW_DEVICE} 0 query)
  list(GET names_${MINITAW_DEVICE} 1 kind)
  minitaw_probe_mpi(MINITAW_MPI_QUERY MPIX_Query_${query}_support "MPIX_Query_${query}_support()")
  minitaw_probe_mpi(MINITAW_MPI_GPU_KIND MPIX_GPU_SUPPORT_${kind} "MPIX_GPU_query_support(MPIX_GPU_SUPPORT_${kind}, &supported)")
endif()
