# The vendor parts of a device build. Kokkos decides which device it is; each vendor library is an option that is
# AUTO (used where found), ON (must be found) or OFF. What is missing is replaced by a portable version, or, for
# NCCL and NVML, simply not offered. Sets MINITAW_HAVE_<NAME>.

set(MINITAW_DEVICE "")
foreach(backend CUDA HIP SYCL)
  if(Kokkos_ENABLE_${backend})
    set(MINITAW_DEVICE ${backend})
  endif()
endforeach()

if(MINITAW_CUDA AND NOT MINITAW_DEVICE STREQUAL "CUDA")
  message(FATAL_ERROR "MINITAW_CUDA needs a Kokkos built with CUDA, but the one in ${Kokkos_DIR} was built for "
                      "${Kokkos_DEVICES}: load or build one (Spack: kokkos +cuda) and name its folder with -DKokkos_ROOT=...")
endif()

# A host function called from device code compiles, and then fails where nobody looks: nvcc only warns.
if(MINITAW_DEVICE STREQUAL "CUDA")
  foreach(number 20011 20012 20013 20014 20015)
    target_compile_options(Kokkos::kokkoscore INTERFACE "SHELL:-Xcudafe --diag_error=${number}")
  endforeach()
endif()

# minitaw_vendor(NAME FOUND PURPOSE HINT): decides MINITAW_HAVE_<NAME> from option MINITAW_<NAME> and whether it was found.
function(minitaw_vendor name found purpose hint)
  set(have OFF)
  if(MINITAW_${name} AND found)  # AUTO is true, too
    set(have ON)
  elseif(MINITAW_${name} STREQUAL "ON")
    message(FATAL_ERROR "MINITAW_${name} = ON: CMake does not find it; ${hint}, or set it to AUTO to build without (${purpose})")
  endif()
  set(MINITAW_HAVE_${name} ${have} PARENT_SCOPE)
  message(STATUS "${name}: ${have} (${purpose})")
endfunction()

foreach(name CUBLASLT CUDNN NCCL NVML)
  set(MINITAW_${name} AUTO CACHE STRING "Use ${name} in a CUDA build: AUTO, ON or OFF")
  set_property(CACHE MINITAW_${name} PROPERTY STRINGS AUTO ON OFF)
  set(MINITAW_HAVE_${name} OFF)
endforeach()

if(MINITAW_DEVICE STREQUAL "CUDA")
  find_package(CUDAToolkit REQUIRED)
  find_path(MINITAW_CUDNN_INCLUDE cudnn.h HINTS ${CUDNN_ROOT} ENV CUDNN_ROOT ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
  find_library(MINITAW_CUDNN_LIBRARY cudnn HINTS ${CUDNN_ROOT} ENV CUDNN_ROOT ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib64 lib)
  find_path(MINITAW_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h HINTS ${CUDNN_FRONTEND_ROOT} ENV CUDNN_FRONTEND_ROOT ${CUDNN_ROOT}
            PATH_SUFFIXES include)
  find_path(MINITAW_NCCL_INCLUDE nccl.h HINTS ${NCCL_ROOT} ENV NCCL_ROOT ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
  find_library(MINITAW_NCCL_LIBRARY nccl HINTS ${NCCL_ROOT} ENV NCCL_ROOT ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib64 lib)
  find_path(MINITAW_NVML_INCLUDE nvml.h HINTS ${NVML_ROOT} ENV NVML_ROOT ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
  find_library(MINITAW_NVML_LIBRARY nvidia-ml HINTS ${NVML_ROOT} ENV NVML_ROOT ${CUDAToolkit_LIBRARY_DIR}
               PATH_SUFFIXES lib64 lib stubs lib64/stubs lib/stubs)

  set(found OFF)
  if(TARGET CUDA::cublasLt)
    set(found ON)
  endif()
  minitaw_vendor(CUBLASLT ${found} "matrix products; else a slow portable kernel" "it is part of the CUDA toolkit")

  set(found OFF)
  if(MINITAW_CUDNN_INCLUDE AND MINITAW_CUDNN_LIBRARY AND MINITAW_CUDNN_FRONTEND_INCLUDE)
    set(found ON)
  endif()
  minitaw_vendor(CUDNN ${found} "attention in bf16; else the portable kernel"
                 "it needs cuDNN 9 (-DCUDNN_ROOT=...) and the headers of cudnn-frontend (-DCUDNN_FRONTEND_ROOT=...)")
  if(MINITAW_HAVE_CUDNN)
    add_library(minitaw_cudnn INTERFACE)
    target_include_directories(minitaw_cudnn SYSTEM INTERFACE ${MINITAW_CUDNN_INCLUDE} ${MINITAW_CUDNN_FRONTEND_INCLUDE})
    target_link_libraries(minitaw_cudnn INTERFACE ${MINITAW_CUDNN_LIBRARY} CUDA::cudart)
  endif()

  set(found OFF)
  if(MINITAW_NCCL_INCLUDE AND MINITAW_NCCL_LIBRARY)
    set(found ON)
  endif()
  minitaw_vendor(NCCL ${found} "communication between devices; else MPI" "name its folder with -DNCCL_ROOT=...")
  if(MINITAW_HAVE_NCCL)
    add_library(minitaw_nccl INTERFACE)
    target_include_directories(minitaw_nccl SYSTEM INTERFACE ${MINITAW_NCCL_INCLUDE})
    target_link_libraries(minitaw_nccl INTERFACE ${MINITAW_NCCL_LIBRARY} CUDA::cudart)
  endif()

  set(found OFF)
  if(MINITAW_NVML_INCLUDE AND MINITAW_NVML_LIBRARY)
    set(found ON)
  endif()
  minitaw_vendor(NVML ${found} "the driver's version and the device's limits" "name its folder with -DNVML_ROOT=...")
  if(MINITAW_HAVE_NVML)
    add_library(minitaw_nvml INTERFACE)
    target_include_directories(minitaw_nvml SYSTEM INTERFACE ${MINITAW_NVML_INCLUDE})
    target_link_libraries(minitaw_nvml INTERFACE ${MINITAW_NVML_LIBRARY})
  endif()
endif()
