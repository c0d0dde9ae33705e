# SPDX-License-Identifier: BSD-3-Clause
# Builds the private Debian root of scripts/env. The packages are unpacked side by side instead of being installed one after another, and
# only the few settings that a compiler needs are made: this takes a third of the time of a full bootstrap, and the same path serves root
# and unprivileged users, who cannot change file owners without helper programs that a fresh machine does not have.

# Mirrors that the machine itself uses for a Debian suite, one URI per line.
mirror_candidates() {
  [[ -z ${MINITAW_MIRROR:-} ]] || { echo "$MINITAW_MIRROR"; return; }
  apt-get update --print-uris 2>/dev/null |
    sed -nE "s#^'([^']*)/dists/(stable|oldstable|testing|unstable|sid|bookworm|trixie|forky)/InRelease'.*#\1#p" | awk '!seen[$0]++'
}

# Proxy, authentication and transport settings are the machine's; folders, hooks and pins are ours: with another `Dir` apt reads none of
# the machine's files.
write_apt_configuration() {
  mkdir -p "$apt"/{etc/apt,var/lib/apt/lists/partial,var/lib/dpkg,var/cache/apt/archives/{,"$arch/"}partial,var/log/apt}
  : >"$apt/var/lib/dpkg/status"
  {
    apt-config dump | grep -E '^Acquire::' | grep -vE '^Acquire::(IndexTargets|Languages|GzipIndexes)'
    cat <<END
Dir "$apt";
APT::Sandbox::User "root";
APT::Architecture "$(dpkg --print-architecture)";
APT::Architectures { "$(dpkg --print-architecture)"; ${arch:+"\"$arch\";"} };
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::Retries "3";
Debug::NoLocking "true";
END
  } >"$apt/apt.conf"
  export APT_CONFIG="$apt/apt.conf"
}

write_sources() { # mirror
  local keyring=/usr/share/keyrings/debian-archive-keyring.pgp
  [[ -r $keyring ]] || keyring=${keyring%.pgp}.gpg
  [[ -r $keyring ]] && keyring="signed-by=$keyring" || keyring=
  echo "deb [lang=none $keyring] $1 trixie main"
  echo "deb [lang=none check-valid-until=no $keyring] $1 sid main" # it may be past its date on a mirror that is frozen or late
}

# Leaves APT_CONFIG set, so that plain apt-get calls use a private state and touch nothing outside the cache folder.
prepare_apt() {
  local mirror mirrors
  mirrors=$(mirror_candidates) # before apt's configuration is ours
  write_apt_configuration
  # Kokkos comes from sid, and nothing else: NAME/sid would take the C library too
  printf 'Package: %s\nPin: release n=sid\nPin-Priority: %s\n\n' '*' 100 'libkokkos*' 990 >"$apt/etc/apt/preferences"
  for mirror in $mirrors; do
    write_sources "$mirror" >"$apt/etc/apt/sources.list"
    # apt tells of a missing signature by a warning only when older lists are there; there are none here.
    apt-get -q -o APT::Update::Error-Mode=any update && return
  done
  return 1
}

unpack() { # folder deb...
  local folder=$1 deb
  shift
  for deb; do
    dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$folder" --no-same-owner --keep-directory-symlink \
      --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' --exclude='./usr/share/info/*' \
      --exclude='./usr/share/locale/*' || return 1
  done
}
export -f unpack

unpack_all() {
  mkdir -p "$new"/usr/{bin,sbin,lib,lib64} "$new/control"
  ln -s usr/{bin,sbin,lib,lib64} "$new"
  find "$archives" -maxdepth 1 -name '*.deb' -print0 | sort -z |
    xargs -0 -P "$(nproc)" -n 8 bash -c 'set -o pipefail; unpack "$@"' unpack "$new" || return
  keep_scripts '' update-alternatives "$archives"/*.deb
}

# Maintainer scripts that choose between alternatives (cc, BLAS, MPI) are run later.
keep_scripts() { # prefix of their names, text in them, deb...
  local prefix=$1 text=$2 deb name
  shift 2
  for deb; do
    name=${deb##*/}
    dpkg-deb -I "$deb" postinst 2>/dev/null >"$work/postinst" || continue
    ! grep -qe "$text" "$work/postinst" || cp "$work/postinst" "$new/control/$prefix${name%%_*}"
  done
}

# Adds the libraries of another architecture. Debian keeps them in folders named after it; headers elsewhere and programs are this
# machine's. Of their alternatives only those with its name are chosen: BLAS and MPI.
add_architecture() {
  local other=$work/other tuple=aarch64-linux-gnu debs=("$archives/$arch"/*_"$arch".deb)
  mkdir "$other"
  printf '%s\0' "${debs[@]}" | xargs -0 -P "$(nproc)" -n 8 bash -c 'set -o pipefail; unpack "$@"' unpack "$other" || return
  cp -alf "$other"/usr/lib/{$tuple,ld-linux-aarch64.so.1} "$new/usr/lib/" && cp -alf "$other/usr/include/$tuple" "$new/usr/include/" ||
    return
  keep_scripts "$arch-" "-$tuple" "${debs[@]}"
  sed "s/$(uname -m)-linux-gnu/$tuple/; s/^CXX=.*/CXX=$tuple-g++/" "$new/usr/bin/mpicxx.mpich" >"$new/usr/bin/$tuple-mpicxx"
  chmod +x "$new/usr/bin/$tuple-mpicxx"
}

# libkokkos-dev names static libraries of its header-only parts that it does not ship.
add_empty_archives() {
  local library
  grep -rhoE '\$\{_IMPORT_PREFIX\}/[^";]*\.a' "$new"/usr/lib/*/cmake/Kokkos/ 2>/dev/null | sort -u |
    while read -r library; do
      library=$new/usr/${library#*/}
      [[ -e $library ]] || printf '!<arch>\n' >"$library"
    done
}

# Where scripts/lib/enter.sh makes its mounts: files that the machine's own take the place of need to exist.
add_mount_points() {
  cp "$new/usr/share/base-passwd/passwd.master" "$new/etc/passwd"
  cp "$new/usr/share/base-passwd/group.master" "$new/etc/group"
  touch "$new"/etc/{resolv.conf,hosts,hostname,nsswitch.conf,machine-id}
  mkdir -p "$new"/{mnt,usr/src,usr/local}
}

configure_inside='
set -e
export DPKG_MAINTSCRIPT_NAME=postinst DPKG_MAINTSCRIPT_ARCH=all DPKG_ADMINDIR=/var/lib/dpkg
mkdir -p /var/lib/dpkg/alternatives /var/lib/dpkg/info; touch /var/lib/dpkg/status
ldconfig
# the default awk is chosen first: other scripts need it
for name in mawk $(ls /control); do
  [ -e "/control/$name" ] || continue
  DPKG_MAINTSCRIPT_PACKAGE=$name sh -c "exec $(sed -n "1s/^#! *//p" "/control/$name") /control/$name configure" ||
    echo "settings of $name are incomplete"
done
ldconfig
(cd /usr/share/ca-certificates && find . -name "*.crt" | sed s,./,,) >/etc/ca-certificates.conf
update-ca-certificates || true
# byte-code and font cache of the plotting modules
MPLCONFIGDIR=/tmp python3 -c "import numpy, h5py, pandas, matplotlib.pyplot" || true
for tool in cc c++ cmake ninja mpicxx mpiexec git python3; do command -v $tool; done
for blas in /usr/lib/*-linux-gnu/libblas.so; do realpath -e "$blas" | grep openmp; done
'

configure() {
  "${namespace[@]}" bash -c 'PATH+=:/usr/sbin
    mount --rbind /dev "$0/dev" && mount --rbind /proc "$0/proc" && mount -t tmpfs tmpfs "$0/tmp" &&
      exec chroot "$0" env -i PATH=/usr/sbin:/usr/bin HOME=/tmp LC_ALL=C.UTF-8 sh -c "$1"' "$new" "$configure_inside"
}

build_root() {
  local work=$1 apt=$1/apt archives=$1/apt/var/cache/apt/archives new=$1/root started=$SECONDS
  say "building the environment, once (about a minute and 2.5 GB in $cache)"
  say "  downloading"
  prepare_apt && apt-get -q -y --download-only install "?essential?architecture($(dpkg --print-architecture))" $(package_list | sed 's/#.*//') && {
    [[ -z $arch ]] || apt-get -q -y --download-only -o APT::Architecture="$arch" -o Dir::Cache::archives="$archives/$arch" \
      install $(package_list | sed 's/#.*//' | grep -oE '\blib[^ ]*-dev\b')
  } ||
    fail "cannot get the packages from the Debian mirror of this machine; see $cache/build.log"
  say "  unpacking $(find "$archives" -name '*.deb' | wc -l) packages"
  unpack_all && { [[ -z $arch ]] || add_architecture; } || fail "unpacking failed; see $cache/build.log"
  add_empty_archives
  add_mount_points
  say "  configuring"
  configure || fail "configuring failed; see $cache/build.log"
  rm -rf "$new/control"
  basename "$root" >"$new/etc/minitaw-root"
  mv -T "$new" "$root" || fail "cannot write $root"
  rm -rf "$work"
  say "environment ready after $((SECONDS - started)) s"
}

# Two callers at once must not both build: the second waits and finds the root complete.
build_once() {
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
    fail "CMake does not find all libraries here (see $cache/probe.log), and without apt no private root can be built: install the packages of spack.yaml"
  "${namespace[@]}" true ||
    fail "this machine does not let you create namespaces, which the private root needs: allow user namespaces, or use the Containerfile"
  mkdir -p "$cache" || fail "cannot write the cache folder $cache; set MINITAW_CACHE to another one"
  exec 9>"$cache/lock"
  flock -n 9 || { say "waiting for another call that is building the environment"; flock 9; }
  if [[ ! -d $root ]]; then
    rm -rf "$cache"/building.*
    (
      exec 8>&2 >"$cache/build.log" 2>&1
      say() { printf 'minitaw: %s\n' "$*" >&8; echo "== $*"; }
      build_root "$cache/building.$$"
    ) 9>&- || exit
    find "$cache" -maxdepth 1 -name 'root-*' -mtime +30 -exec rm -rf {} + # of other versions, unused for a month
  fi
  exec 9>&-
}
