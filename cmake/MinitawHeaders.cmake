# SPDX-License-Identifier: BSD-3-Clause
# A test that every header compiles alone. A header with a source file of its name is compiled first
# there; the others get a generated source that includes nothing else. Built only when the test
# runs.
function(minitaw_add_headers_test)
  file(
    GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/src
    ${PROJECT_SOURCE_DIR}/src/*.hpp)
  # compiled by CUDA builds only, with the files that use them
  list(FILTER headers EXCLUDE REGEX "/cuda/")
  set(sources "")
  foreach(header IN LISTS headers)
    string(REGEX REPLACE "[.]hpp$" "" name ${header})
    if(NOT EXISTS ${PROJECT_SOURCE_DIR}/src/${name}.cpp)
      set(source ${PROJECT_BINARY_DIR}/headers/${name}.cpp)
      file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${header}\"\n")
      list(APPEND sources ${source})
    endif()
  endforeach()
  add_library(minitaw_headers OBJECT EXCLUDE_FROM_ALL ${sources})
  target_include_directories(
    minitaw_headers PRIVATE ${PROJECT_SOURCE_DIR}/src ${HDF5_C_INCLUDE_DIRS})
  target_compile_options(minitaw_headers PRIVATE -O0)
  target_link_libraries(
    minitaw_headers PRIVATE fmt::fmt nlohmann_json::nlohmann_json Kokkos::kokkos MPI::MPI_CXX)
  add_test(
    NAME headers COMMAND ${CMAKE_COMMAND} --build ${PROJECT_BINARY_DIR} --target minitaw_headers)
  set_tests_properties(
    headers PROPERTIES LABELS host TIMEOUT 600 PROCESSORS 2 RESOURCE_LOCK build_folder)
endfunction()
