# SPDX-License-Identifier: BSD-3-Clause
# Run at every build: writes OUTPUT with the git hash of SOURCE, "-dirty" appended when files differ from it: any that it has,
# and any more in the folders that are compiled, because some libraries take every file that they find. Decks and results
# that lie about make nothing dirty. Where there is no repository, in a container say, the environment variable
# MINITAW_COMMIT names the commit.
# The file is touched only when the hash has changed, so that an unchanged tree rebuilds nothing.
find_package(Git QUIET)
set(hash $ENV{MINITAW_COMMIT})
if(NOT hash MATCHES "^[0-9a-f]+(-dirty)?$")
  set(hash unknown)
endif()
if(GIT_FOUND)
  set(git ${GIT_EXECUTABLE} -c safe.directory=* -C "${SOURCE}")
  execute_process(COMMAND ${git} rev-parse --short=12 HEAD OUTPUT_VARIABLE found RESULT_VARIABLE code ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(code EQUAL 0)
    set(hash ${found})
    execute_process(COMMAND ${git} --no-optional-locks status --porcelain --untracked-files=no
                    OUTPUT_VARIABLE changes ERROR_QUIET)
    execute_process(COMMAND ${git} ls-files --others --exclude-standard -- src miniapp cmake OUTPUT_VARIABLE more ERROR_QUIET)
    if(changes OR more)
      string(APPEND hash -dirty)
    endif()
  endif()
endif()

set(text "#pragma once\n\n#define MINITAW_GIT_HASH \"${hash}\"\n")
if(EXISTS "${OUTPUT}")
  file(READ "${OUTPUT}" previous)
endif()
if(NOT "${previous}" STREQUAL "${text}")
  file(WRITE "${OUTPUT}" "${text}")
endif()
