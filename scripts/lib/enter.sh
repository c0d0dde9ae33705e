# Enters the root: its /usr and /etc, and everything else of the machine at its usual place.

# Names that belong to the root or are handled one by one below.
own_names=' bin sbin lib lib32 lib64 libx32 usr etc proc sys dev boot '

set_variables() {
  PATH=/usr/local/bin:/usr/bin:/usr/sbin
  [[ ! -d /usr/local/cuda ]] || PATH+=:/usr/local/cuda/bin
  # settings of the machine's own compilers and interpreters do not fit the ones inside
  unset CC CXX FC LD LD_LIBRARY_PATH LD_PRELOAD LIBRARY_PATH CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH PKG_CONFIG_PATH PYTHONPATH PYTHONHOME VIRTUAL_ENV \
    LC_ALL LANGUAGE
  export PATH LANG=C.UTF-8 PYTHONNOUSERSITE=1
  # several ranks share a node here: bound threads would pile up on the same cores
  export OMP_PROC_BIND=${OMP_PROC_BIND:-false} KOKKOS_DISABLE_WARNINGS=${KOKKOS_DISABLE_WARNINGS:-1}
}

bwrap_arguments() { # root
  local root=$1 name path
  arguments=(--die-with-parent --ro-bind "$root/usr" /usr --ro-bind "$root/etc" /etc)
  for name in bin sbin lib lib64; do arguments+=(--symlink "usr/$name" "/$name"); done
  arguments+=(--tmpfs /usr/local --tmpfs /usr/src)
  for path in /*; do
    [[ $own_names != *" ${path#/} "* ]] || continue
    if [[ -L $path ]]; then
      arguments+=(--symlink "$(readlink "$path")" "$path")
    elif [[ -d $path ]]; then
      arguments+=(--bind "$path" "$path")
    fi
  done
  arguments+=(--dev-bind /dev /dev --bind /proc /proc --bind /sys /sys)
  for name in passwd group hosts hostname resolv.conf machine-id ssl/certs/ca-certificates.crt; do
    [[ ! -r /etc/$name ]] || arguments+=(--ro-bind "/etc/$name" "/etc/$name")
  done
  for path in "$PWD" "$HOME" "$repository" "$cache"; do # work may also live below /usr/local or /usr/src
    [[ $path != /usr/local/?* && $path != /usr/src/?* ]] || arguments+=(--bind "$path" "$path")
  done
  for path in /usr/local/cuda*; do
    [[ ! -d $path ]] || arguments+=(--ro-bind "$path" "$path")
  done
  arguments+=(--chdir "$PWD")
}

# Signals that the caller ignores stay ignored inside (nohup), all others get their default back.
default_signals() {
  local signal ignored
  ignored=$(trap -p)
  for signal in TERM HUP INT QUIT; do
    [[ $ignored == *"'' SIG$signal"* ]] || printf '%s,' "$signal"
  done
}

# bubblewrap waits for the command in a process of its own that would die of a signal and take the
# command down hard. It is made deaf, and SIGTERM is passed on to the command itself.
forward() { # signal bwrap-pid
  local child children
  children=$(cat "/proc/$2/task/$2/children" 2>/dev/null)
  for child in ${children:-$2}; do kill -s "$1" "$child" 2>/dev/null; done
  :
}

enter() { # root command...
  local root=$1 arguments signals pid code last
  shift
  signals=$(default_signals)
  set_variables
  bwrap_arguments "$root"
  bwrap_of "$root"
  (
    trap '' TERM HUP INT QUIT
    exec "${bwrap[@]}" "${arguments[@]}" -- env ${signals:+"--default-signal=${signals%,}"} -- "$@"
  ) <&0 &
  pid=$!
  trap 'forward TERM $pid' TERM
  trap 'forward HUP $pid' HUP
  trap ':' INT QUIT
  # a signal cuts `wait` short; once the command is gone, bash still knows its exit code
  while :; do
    wait "$pid"
    code=$?
    [[ $code -gt 128 ]] && kill -0 "$pid" 2>/dev/null || break
  done
  if [[ $code -gt 128 ]]; then
    wait "$pid" 2>/dev/null
    last=$?
    [[ $last == 127 ]] || code=$last
  fi
  exit "$code"
}
