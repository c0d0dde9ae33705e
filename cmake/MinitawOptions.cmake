# SPDX-License-Identifier: BSD-3-Clause
# How every target is compiled.
add_library(minitaw_options INTERFACE)
set(minitaw_arm OFF)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(minitaw_arm ON)
endif()
target_compile_features(minitaw_options INTERFACE cxx_std_20)
target_compile_options(minitaw_options INTERFACE -Wall -Wextra -Wshadow)
if(MINITAW_DEVICE)
  target_compile_definitions(minitaw_options INTERFACE MINITAW_${MINITAW_DEVICE})  # src/base/vendor.hpp asks
endif()
# No one asks errno how sqrt went, nor catches a floating-point exception; without them, loops over sqrt and exponentials
# become vector code.
target_compile_options(minitaw_options INTERFACE -fno-math-errno -fno-trapping-math)
if(NOT Kokkos_ENABLE_CUDA)
  target_compile_options(minitaw_options INTERFACE -Wpedantic)  # nvcc's own line directives are not
endif()

# GCC collects the garbage of its own memory later, with up to 0.5 GiB: files with many templates compile in a fifth less time.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT Kokkos_ENABLE_CUDA)
  target_compile_options(minitaw_options INTERFACE --param=ggc-min-heapsize=524288)
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND minitaw_arm)
  target_compile_options(minitaw_options INTERFACE -Wno-psabi)  # a note on code of GCC 9
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(minitaw_options INTERFACE -Wno-unknown-pragmas)  # GCC's ivdep
endif()

if(MINITAW_WERROR)
  target_compile_options(minitaw_options INTERFACE -Werror)
endif()

if(MINITAW_NATIVE)
  include(CheckCXXCompilerFlag)
  set(native -march=native)
  if(minitaw_arm)
    set(native -mcpu=native)  # its instructions and its timing; on x86, -march is both
  endif()
  check_cxx_compiler_flag(${native} minitaw_native)
  if(minitaw_native)
    target_compile_options(minitaw_options INTERFACE ${native})
  endif()
  # GCC holds back half of the width where it might cost clock rate; matrix products use all of it anyway.
  check_cxx_compiler_flag(-mprefer-vector-width=512 minitaw_wide_vectors)
  if(minitaw_wide_vectors)
    target_compile_options(minitaw_options INTERFACE -mprefer-vector-width=512)
  endif()
endif()

# Sanitizers watch what is tested. What judges it, tests and references, has the target property MINITAW_JUDGES and is compiled without
# them, in half the time; but tests of threads are not: the thread sanitizer has to see their synchronisation.
if(MINITAW_SANITIZE)
  set(minitaw_sanitizers -fsanitize=${MINITAW_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  set(judges $<BOOL:$<TARGET_PROPERTY:MINITAW_JUDGES>>)
  target_compile_options(minitaw_options INTERFACE "$<$<NOT:${judges}>:${minitaw_sanitizers}>")
  target_link_options(minitaw_options INTERFACE ${minitaw_sanitizers})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Instrumented code misleads it (GCC's manual says so): it complains about the library's own <regex>
    target_compile_options(minitaw_options INTERFACE -Wno-maybe-uninitialized)
  endif()
  if(MINITAW_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC says so of every fence in Kokkos's headers; lanes synchronise by atomics alone, which it understands
    target_compile_options(minitaw_options INTERFACE -Wno-tsan)
  endif()
endif()

# Code that need not be fast, as command lines, files and texts, is compiled in a third less time. A precompiled header serves two levels of
# optimisation if the options of the processor agree: from -O2 on GCC sets two more of them on x86, one more on Arm, and others elsewhere.
if(NOT Kokkos_ENABLE_CUDA)  # nvcc takes one level
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(minitaw_cold_options -O1)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(minitaw_cold_options -O1 -mvzeroupper -munroll-only-small-loops)
  elseif(minitaw_arm AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 14)
    set(minitaw_cold_options -O1 -mearly-ra=all)
  endif()
endif()

function(minitaw_cold target)
  target_compile_options(${target} PRIVATE "$<$<CONFIG:Release>:${minitaw_cold_options}>")
endfunction()

function(minitaw_compile_as_test target)
  minitaw_cold(${target})
  if(NOT MINITAW_SANITIZE STREQUAL "thread")
    set_target_properties(${target} PROPERTIES MINITAW_JUDGES ON)
  endif()
endfunction()

# minitaw_includes(TARGET FOLDER): TARGET and what links it may say #include "FOLDER/..." of src/FOLDER, and of no other folder:
# a header of a library that is not linked is not found, so libraries cannot go round in circles.
function(minitaw_includes target folder)
  set(root ${PROJECT_BINARY_DIR}/include/${folder})
  cmake_path(GET folder PARENT_PATH above)
  file(MAKE_DIRECTORY ${root}/${above})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/src/${folder} ${root}/${folder} SYMBOLIC)
  get_target_property(kind ${target} TYPE)
  if(kind STREQUAL "INTERFACE_LIBRARY")
    target_include_directories(${target} INTERFACE ${root})
  else()
    target_include_directories(${target} PUBLIC ${root})
  endif()
endfunction()

# minitaw_library(TARGET FOLDER SOURCES file ... [PUBLIC library ...] [PRIVATE library ...] [FAST]): a static library whose headers are in
# src/FOLDER, see minitaw_includes(). Those of PRIVATE libraries are not seen by who links it. FAST: steps, programs of
# schedules or predictions spend their time there; others are minitaw_cold().
function(minitaw_library target folder)
  cmake_parse_arguments(PARSE_ARGV 2 arg "FAST" "" "SOURCES;PUBLIC;PRIVATE")
  add_library(${target} STATIC ${arg_SOURCES})
  target_link_libraries(${target} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
  minitaw_includes(${target} ${folder})
  if(NOT arg_FAST)
    minitaw_cold(${target})
  endif()
endfunction()
