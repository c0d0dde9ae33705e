# Does CMake find everything on this machine (modules, Spack)? The answer is remembered for these paths.

probe_key() {
  { env | grep -E '^(PATH|LD_LIBRARY_PATH|CMAKE_PREFIX_PATH|CC|CXX|[A-Za-z0-9_]*_(ROOT|DIR))=' | sort
    cat "$repository/cmake/probe/CMakeLists.txt"; } | sha256sum | cut -c1-12
}

machine_has_everything() {
  local answer folder code=1
  command -v cmake >/dev/null && command -v mpiexec >/dev/null || return 1
  answer=$cache/probe-$(probe_key)
  [[ ! -e $answer ]] || return "$(cat "$answer")"
  mkdir -p "$cache" || return 1
  folder=$(mktemp -d)
  cmake -S "$repository/cmake/probe" -B "$folder" >"$cache/probe.log" 2>&1 && code=0
  rm -rf "$folder"
  echo "$code" >"$answer"
  return "$code"
}
