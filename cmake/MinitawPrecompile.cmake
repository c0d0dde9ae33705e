# minitaw_precompile(kokkos|gtest TARGET ...): the targets share one precompiled Kokkos_Core.hpp or gtest.h, each of
# which otherwise costs about a second in every file (a third of the build time of kernels, model and engine).
function(minitaw_add_precompiled name header library)
  set(source ${PROJECT_BINARY_DIR}/precompiled/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "" ESCAPE_QUOTES)
  add_library(minitaw_precompiled_${name} OBJECT EXCLUDE_FROM_ALL ${source})
  target_link_libraries(minitaw_precompiled_${name} PRIVATE minitaw_options ${library})
  target_precompile_headers(minitaw_precompiled_${name} PRIVATE ${header})
endfunction()

if(MINITAW_PRECOMPILE)
  if(NOT MINITAW_PLAIN_ONLY AND NOT MINITAW_DEVICE)  # device compilers cannot read them
    minitaw_add_precompiled(kokkos <Kokkos_Core.hpp> Kokkos::kokkos)
  endif()
  if(MINITAW_TESTS)
    minitaw_add_precompiled(gtest <gtest/gtest.h> GTest::gtest)
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
