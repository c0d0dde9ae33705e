# Configuring, building and testing, for the scripts that run inside the environment.

# The builds share the machine with nobody: one job per core.
jobs=${MINITAW_JOBS:-$(nproc)}

configure_options() {
  [[ -z ${MINITAW_WERROR:-} ]] || echo "-DMINITAW_WERROR=$MINITAW_WERROR"
}

configure_preset() { # preset [options]
  local preset=$1 log
  shift
  mkdir -p "build/$preset"
  log=build/$preset/configure.log
  say "configuring build/$preset"
  cmake --preset "$preset" $(configure_options) "$@" >"$log" 2>&1 || {
    cat "$log" >&2
    fail "configuring build/$preset failed"
  }
}

build_preset() { # preset [target ...]
  local preset=$1 quiet=(--quiet)
  shift
  [[ ! -t 1 ]] || quiet=() # a line of progress, for who looks on
  say "building build/$preset"
  cmake --build "build/$preset" -j "$jobs" -- "${quiet[@]}" "$@" || fail "building build/$preset failed"
}
