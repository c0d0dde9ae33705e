# SPDX-License-Identifier: BSD-3-Clause
# minitaw_version(TARGET SOURCE): SOURCE of TARGET is compiled with what the program says of its build: MINITAW_VERSION,
# MINITAW_BUILD_TYPE, MINITAW_COMPILER and MINITAW_COMPILER_FLAGS, and MINITAW_GIT_HASH in minitaw_git_hash.hpp, which is renewed
# at every build.
function(minitaw_version target source)
  set(git_hash_header ${CMAKE_CURRENT_BINARY_DIR}/minitaw_git_hash.hpp)
  add_custom_target(
    minitaw_git_hash
    COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DOUTPUT=${git_hash_header} -P
            ${PROJECT_SOURCE_DIR}/cmake/GitHash.cmake
    BYPRODUCTS ${git_hash_header}
    COMMENT "")
  add_dependencies(${target} minitaw_git_hash)
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR})

  string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
  string(STRIP "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}}" flags)
  get_target_property(options minitaw_options INTERFACE_COMPILE_OPTIONS)
  list(FILTER options EXCLUDE REGEX "^(-W|--param)")
  list(JOIN options " " options)
  string(STRIP "${flags} ${options}" flags)
  string(REGEX REPLACE "[^ =]*/[^ ]*" "(path)" flags "${flags}")  # records tell of no folders
  set_source_files_properties(
    ${source}
    PROPERTIES COMPILE_DEFINITIONS "MINITAW_VERSION=\"${PROJECT_VERSION}\";\
MINITAW_BUILD_TYPE=\"${CMAKE_BUILD_TYPE}\";\
MINITAW_COMPILER=\"${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}\";\
MINITAW_COMPILER_FLAGS=\"${flags}\"")
endfunction()
