# SPDX-License-Identifier: BSD-3-Clause
# minitaw_test(NAME name SOURCES file ... LIBS target ... [RANKS n ...] [LABELS label ...]
#              [THREADS n] [TIMEOUT seconds] [ARGS argument ...] [APART])
#
# APART: its files use the same names, so that a unity build must not join them.
#
# Builds test_<name> and adds one ctest, or with RANKS one per number of ranks, run by mpiexec.
# Label `quick` marks the daily round; `asan` and `tsan` mark the tests that run under those
# sanitizers too. MPI and Kokkos are started and ended around the tests that link them, unless a
# source brings its own main function.
set(minitaw_test_environment ${CMAKE_CURRENT_LIST_DIR}/test_environment)
add_library(minitaw_test_kokkos OBJECT EXCLUDE_FROM_ALL ${minitaw_test_environment}/kokkos.cpp)
add_library(minitaw_test_mpi OBJECT EXCLUDE_FROM_ALL ${minitaw_test_environment}/mpi.cpp)
target_link_libraries(minitaw_test_kokkos PUBLIC minitaw_options Kokkos::kokkos GTest::gtest)
target_link_libraries(minitaw_test_mpi PUBLIC minitaw_options MPI::MPI_CXX GTest::gtest fmt::fmt)

# Whole steps in bf16 take minutes under sanitizers; the tests of its kernels run there.
if(MINITAW_SANITIZE)
  set(minitaw_test_fp32_only --gtest_filter=-*f16*)
endif()

# Of emulated programs.
set(minitaw_test_slowness 1)
if(CMAKE_CROSSCOMPILING)
  set(minitaw_test_slowness 12)
endif()

# Ranks outnumber the cores of most machines that test. MPICH's waits then burn the time slices of
# the ranks that they wait for, unless they sleep for moments. ctest reads this file, and every test
# inherits what it sets, also one that calls mpiexec by itself.
file(
  CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/test_variables.cmake CONTENT
  "set(ENV{MPIR_CVAR_ENABLE_HEAVY_YIELD} 1)\n")
set_property(
  DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY TEST_INCLUDE_FILES
  ${PROJECT_BINARY_DIR}/test_variables.cmake)

add_custom_target(asan_tests)
add_custom_target(tsan_tests)

# minitaw_linked_libraries(result target ...)
#
# Sets `result` to the names of all libraries that the targets link, and those that these link: tests
# need not say whether Kokkos is among them.
function(minitaw_linked_libraries result)
  set(seen "")
  set(open ${ARGN})
  while(open)
    list(POP_FRONT open target)
    if(target IN_LIST seen)
      continue()
    endif()
    list(APPEND seen ${target})
    if(TARGET ${target})
      get_target_property(next ${target} INTERFACE_LINK_LIBRARIES)
      if(next)
        list(TRANSFORM next REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1")
        list(APPEND open ${next})
      endif()
    endif()
  endwhile()
  set(${result} "${seen}" PARENT_SCOPE)
endfunction()

# minitaw_add_test_environment(target uses_kokkos uses_mpi source ...)
#
# Links what starts and ends Kokkos and MPI around the tests of the target; nothing of it where one
# of the sources has a main function.
function(minitaw_add_test_environment target uses_kokkos uses_mpi)
  foreach(source IN LISTS ARGN)
    file(STRINGS ${source} own_main REGEX "^int main\\(")
    if(own_main)
      target_link_libraries(${target} PRIVATE GTest::gtest GTest::gmock)
      return()
    endif()
  endforeach()
  target_link_libraries(${target} PRIVATE GTest::gtest_main GTest::gmock)
  if(uses_mpi)
    target_link_libraries(${target} PRIVATE minitaw_test_mpi)
  endif()
  if(uses_kokkos)
    target_link_libraries(${target} PRIVATE minitaw_test_kokkos)
  endif()
endfunction()

# minitaw_add_ctest(name ranks threads TARGET target TIMEOUT seconds [LABELS label ...]
#                   [ARGS argument ...])
#
# Adds a ctest that runs the target on that many ranks, without mpiexec if there are 0, with that
# many threads each, and has the target built for the sanitizers among the labels. A test program
# without a test fails.
function(minitaw_add_ctest name ranks threads)
  cmake_parse_arguments(arg "" "TARGET;TIMEOUT" "LABELS;ARGS" ${ARGN})
  math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * ${minitaw_test_slowness}")
  set(command $<TARGET_FILE:${arg_TARGET}> ${arg_ARGS})
  set(failures "Running 0 tests")
  if(ranks)
    # MPICH's launcher now and then returns 0 although a rank has failed: what GoogleTest says counts
    # as well.
    list(
      APPEND failures "BAD TERMINATION" "FAILED TEST" "[[]  FAILED  []]"
      "thrown in auxiliary test code" "rank [0-9]+: [^ ]+:[0-9]+: ")
    set(
      command ${MPIEXEC_EXECUTABLE} ${MINITAW_MPIEXEC_FLAGS} ${MPIEXEC_NUMPROC_FLAG} ${ranks}
      ${command})
    math(EXPR processors "${ranks} * ${threads}")
  else()
    set(processors ${threads})
  endif()
  add_test(NAME ${name} COMMAND ${command})
  set_tests_properties(
    ${name}
    PROPERTIES FAIL_REGULAR_EXPRESSION "${failures}"
               LABELS "${arg_LABELS}"
               TIMEOUT ${arg_TIMEOUT}
               PROCESSORS ${processors}
               ENVIRONMENT
               "OMP_NUM_THREADS=${threads};OMP_PROC_BIND=false;OMP_WAIT_POLICY=passive;\
TSAN_OPTIONS=ignore_noninstrumented_modules=1 halt_on_error=1;ASAN_OPTIONS=detect_leaks=1")
  foreach(sanitizer asan tsan)
    if(${sanitizer} IN_LIST arg_LABELS)
      add_dependencies(${sanitizer}_tests ${arg_TARGET})
    endif()
  endforeach()
endfunction()

function(minitaw_test)
  cmake_parse_arguments(
    arg "APART" "NAME;THREADS;TIMEOUT" "SOURCES;LIBS;RANKS;LABELS;ARGS" ${ARGN})
  if(NOT arg_NAME OR NOT arg_SOURCES OR arg_UNPARSED_ARGUMENTS)
    message(
      FATAL_ERROR
      "minitaw_test needs NAME and SOURCES, and does not know: '${arg_UNPARSED_ARGUMENTS}'")
  endif()
  set(target test_${arg_NAME})
  list(TRANSFORM arg_SOURCES PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/" REGEX "^[^/]")
  add_executable(${target} ${arg_SOURCES})
  set_target_properties(${target} PROPERTIES UNITY_BUILD_BATCH_SIZE 4)
  if(arg_APART)
    set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
  endif()
  target_include_directories(
    ${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${target} PRIVATE ${arg_LIBS} fmt::fmt)  # fmt is in the precompiled headers

  minitaw_linked_libraries(linked ${arg_LIBS})
  set(uses_kokkos OFF)
  set(uses_mpi OFF)
  if(Kokkos::kokkos IN_LIST linked)
    set(uses_kokkos ON)
    minitaw_precompile(kokkos_tests ${target})
  else()
    minitaw_precompile(plain_tests ${target})
  endif()
  minitaw_compile_as_test(${target})
  if(arg_RANKS)
    set(uses_mpi ON)
  endif()
  minitaw_add_test_environment(${target} ${uses_kokkos} ${uses_mpi} ${arg_SOURCES})

  if(NOT arg_THREADS)
    # kernels run with two threads, so that a race can show; several ranks share the cores already
    set(arg_THREADS 1)
    if(uses_kokkos AND NOT uses_mpi AND NOT MINITAW_SANITIZE STREQUAL "thread")
      set(arg_THREADS 2)
    endif()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 600)  # a busy machine needs several times as long as a quiet one
  endif()

  set(common TARGET ${target} TIMEOUT ${arg_TIMEOUT} ARGS ${arg_ARGS})
  if(NOT arg_RANKS)
    minitaw_add_ctest(${arg_NAME} 0 ${arg_THREADS} ${common} LABELS ${arg_LABELS})
  endif()
  foreach(ranks IN LISTS arg_RANKS)
    minitaw_add_ctest(
      ${arg_NAME}.${ranks} ${ranks} ${arg_THREADS} ${common} LABELS ${arg_LABELS})
  endforeach()
endfunction()
