# SPDX-License-Identifier: BSD-3-Clause
# How the scripts begin that work inside the environment: their help, the repository as folder,
# scripts/env, and what they share.

case ${1:-} in -h | --help) sed -n "3,/^[^#]/s/^# \{0,1\}//p" "$0"; exit 0 ;; esac
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/../.." || exit 1
[[ -n ${minitaw_inside:-} ]] || minitaw_inside=yes minitaw_began=$EPOCHSECONDS exec scripts/env "scripts/${0##*/}" "$@"
. scripts/lib/say.sh

# The builds have the machine to themselves: one job per core.
jobs=${MINITAW_JOBS:-$(nproc)}

configure_preset() { # preset [options]
  local preset=$1
  shift
  mkdir -p "build/$preset"
  say "configuring build/$preset"
  local log=build/$preset/configure.log warnings=() home
  # A copied build names the folders of the tree that it comes from.
  home=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "build/$preset/CMakeCache.txt" 2>/dev/null)
  [[ -z $home || $home -ef . ]] || find "build/$preset" -mindepth 1 -delete
  [[ -z ${MINITAW_WERROR:-} ]] || warnings=("-DMINITAW_WERROR=$MINITAW_WERROR")
  cmake --preset "$preset" "${warnings[@]}" "$@" >"$log" 2>&1 || {
    cat "$log" >&2
    fail "configuring build/$preset failed"
  }
}

build_preset() { # preset [target ...]
  local preset=$1 quiet=(--quiet)
  shift
  [[ ! -t 1 ]] || quiet=() # a line of progress, for who looks on
  say "building build/$preset"
  cmake --build "build/$preset" -j "$jobs" -- "${quiet[@]}" "$@" ||
    fail "building build/$preset failed"
}
