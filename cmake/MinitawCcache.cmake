# Compile through ccache where it is installed; precompiled headers need its permission to ignore time stamps.
find_program(MINITAW_CCACHE ccache)
if(MINITAW_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} ${MINITAW_CCACHE})
endif()
