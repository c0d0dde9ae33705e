# What gpu-check and gpu-speed share: the command line, programs in PATH, steps with a time limit and a table of them.
# Sourced with `here` set to the repository or packed folder, and takes_peer=yes where there is a --peer; sets out, peer,
# log, table, failed.

usage() {
  say "usage: scripts/$(basename "$0") OUT${takes_peer:+ [--peer SCRIPT.py]} [--limit SECONDS]"
  exit 2
}

read_arguments() {
  out= peer= limit=540
  while [[ $# -gt 0 ]]; do
    case $1 in
      --peer) [[ -n ${takes_peer:-} && -f ${2:-} ]] || usage; peer=$(realpath "$2"); shift 2 ;;
      --limit) [[ ${2:-} =~ ^[0-9]+$ ]] || usage; limit=$2; shift 2 ;;
      -*) usage ;;
      *) [[ -z $out ]] || usage; out=$1; shift ;;
    esac
  done
  [[ -n $out ]] || usage
  mkdir -p "$out" && out=$(realpath "$out") || fail "$out cannot be made"
  log=$out/log.txt table=$out/table.txt
}

find_programs() {
  cd "$here" || exit 1
  if [[ -d build/cuda ]]; then
    PATH=$here/build/cuda:$here/build/cuda/benchmarks:$(echo "$here"/build/cuda/tests/* | tr ' ' ':'):$PATH
  fi
  have minitaw || fail "no minitaw in PATH: run it from a packed folder (packed/run scripts/$(basename "$0") OUT), or build build/cuda first"
  # Several ranks share the processor; the device does the work.
  export OMP_NUM_THREADS=1 OMP_PROC_BIND=false KOKKOS_DISABLE_WARNINGS=1
  failed=0 started=$SECONDS
}

row() { printf '%-34s %-8s %6s s  %s\n' "$1" "$2" "$3" "${4:-}" | tee -a "$table"; }
left() { echo $((limit - (SECONDS - started))); }

# Runs a command with a time limit and writes a row. A step that `may` fail does not fail the check.
step() { # [may] name seconds command...
  local may=no name seconds code begin=$SECONDS
  [[ $1 == may ]] && may=yes && shift
  name=$1 seconds=$2
  shift 2
  if [[ $(left) -lt 5 ]]; then
    row "$name" 'NO TIME' 0
    [[ $may == yes ]] || failed=1
    return 1
  fi
  [[ $seconds -le $(left) ]] || seconds=$(left)
  printf '\n== %s: %s\n' "$name" "$*" >>"$log"
  timeout --kill-after=5 "$seconds" "$@" >"$out/step.txt" 2>&1
  code=$?
  # MPICH's launcher now and then loses the exit code of a rank: the program's own words count as well
  [[ $code != 0 ]] || ! grep -qaE '^\[  FAILED  \]|FAILED TEST|thrown in auxiliary|^RESULT: INVALID' "$out/step.txt" || code=1
  case $code in
    0) row "$name" ok $((SECONDS - begin)) ;;
    124 | 137) row "$name" TIMEOUT $((SECONDS - begin)) "after $seconds s" ;;
    *) row "$name" FAILED $((SECONDS - begin)) "exit code $code; $(grep -aE 'FAILED|Failure|error|minitaw:|RESULT|^WRONG:' "$out/step.txt" | tail -1 | cut -c1-120)" ;;
  esac
  cat "$out/step.txt" >>"$log"
  rm -f "$out/step.txt"
  [[ $code == 0 || $may == yes ]] || failed=1
  return "$code"
}

have() { command -v "$1" >/dev/null; }
skip() { row "$1" skipped 0 "$2"; }

describe() {
  date -u +%FT%TZ
  minitaw --version
  nvidia-smi --query-gpu=name,memory.total,driver_version,clocks.max.sm,power.limit --format=csv,noheader 2>/dev/null ||
    echo 'no nvidia-smi'
}

# The last line, and the exit code.
conclude() {
  local verdict=VALID
  [[ $failed == 0 ]] || verdict='INVALID: see the rows above and log.txt'
  printf '\nRESULT: %s (%s s)\n' "$verdict" $((SECONDS - started)) | tee -a "$table"
  exit $failed
}
