# SPDX-License-Identifier: BSD-3-Clause
# enter.sh ROOT REPOSITORY COMMAND ...: called by scripts/env in a mount namespace of its own.
# Takes /usr and /etc from ROOT, leaves everything else of the machine at its usual place, and
# becomes the command: its signals, terminal and exit code are its own.
set -e
export MINITAW_ROOT=$1 # builds remember it
root=$1 repository=$2 folder=$PWD new=$1/mnt
shift 2
PATH+=:/usr/sbin

bind() { # path [what appears there]
  [[ ! -d $1 ]] || mkdir -p "$new$1"
  mount --rbind "${2:-$1}" "$new$1"
}

mount -t tmpfs tmpfs "$new"
for name in usr etc; do
  bind "/$name" "$root/$name"
  mount -o remount,bind,ro "$new/$name"
done
for name in local src; do mount -t tmpfs tmpfs "$new/usr/$name"; done
ln -s usr/{bin,sbin,lib,lib64} "$new"
for path in /*; do
  case $path in
    /usr | /etc | /bin | /sbin | /lib* | /boot) continue ;;
  esac
  if [[ -L $path ]]; then
    cp -P "$path" "$new"
  elif [[ -d $path ]]; then
    bind "$path"
  fi
done
of_machine=(passwd group hosts hostname resolv.conf machine-id ssl/certs/ca-certificates.crt)
for path in "${of_machine[@]/#//etc/}"; do
  [[ ! -r $path ]] || bind "$path"
done
# The kernel gives programs of 64-bit Arm to their emulator, which it opens here.
emulator=$root/usr/bin/qemu-aarch64 known=/proc/sys/fs/binfmt_misc
know_emulator() {
  local zeros='\x00\x00\x00\x00\x00\x00\x00\x00' ones='\xff\xff\xff\xff\xff\xff\xff\xff'
  local begin="\x7fELF\x02\x01\x01\x00$zeros\x02\x00\xb7\x00"
  local mask="${ones%ff}00$ones\xfe\xff\xff\xff"
  mount -t binfmt_misc binfmt_misc "$new$known" &&
    printf %s ":qemu-aarch64:M::$begin:$mask:$emulator:PF" >"$new$known/register"
}
if [[ -x $emulator ]] && ! (know_emulator) 2>/dev/null && [[ ! -e $known/qemu-aarch64 ]]; then
  echo "minitaw: programs of 64-bit Arm compile here, but do not run: that needs Linux 6.7," \
    "or qemu-aarch64 in binfmt_misc" >&2
fi
# Work may also live below /usr/local or /usr/src.
for path in "$folder" "$HOME" "$repository" "${root%/*}" /usr/local/cuda*; do
  [[ ! -d $path || $path != /usr/local/?* && $path != /usr/src/?* ]] || bind "$path"
done

# settings of the machine's own compilers and interpreters do not fit the ones inside
unset CC CXX FC LD LD_LIBRARY_PATH LD_PRELOAD LIBRARY_PATH CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH
unset PKG_CONFIG_PATH PYTHONPATH PYTHONHOME VIRTUAL_ENV LC_ALL LANGUAGE
export PATH=/usr/local/bin:/usr/bin:/usr/sbin LANG=C.UTF-8 PYTHONNOUSERSITE=1
[[ ! -d /usr/local/cuda ]] || PATH+=:/usr/local/cuda/bin
# several ranks share a node here: bound threads would pile up on the same cores
export OMP_PROC_BIND=${OMP_PROC_BIND:-false} KOKKOS_DISABLE_WARNINGS=${KOKKOS_DISABLE_WARNINGS:-1}

cd "$new"
/usr/sbin/pivot_root . .
# The machine's root, which lies above the new one, and the new one where the machine's folders show
# it.
umount -l . "$new"
cd "$folder"
exec "$@"
