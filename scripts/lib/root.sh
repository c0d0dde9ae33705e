# Builds the private Debian root. The packages are unpacked side by side instead of being installed
# one after another, and only the few settings that a compiler needs are made: this takes a third of
# the time of a full bootstrap, and the same path serves root and unprivileged users, who cannot
# change file owners without helper programs that a fresh machine does not have.

package_names() { sed -e 's/#.*//' -e 's#/sid##' -e '/^[[:space:]]*$/d' "$1"; }
sid_package_names() { sed -nE 's#^([^[:space:]]+)/sid\b.*#\1#p' "$1"; }

unpack() { # root deb...
  local root=$1 deb
  shift
  for deb; do
    dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$root" --no-same-owner --keep-directory-symlink \
      --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' --exclude='./usr/share/info/*' \
      --exclude='./usr/share/locale/*' || return 1
  done
}
export -f unpack

unpack_all() { # root archives
  local root=$1 archives=$2 name
  mkdir -p "$root"/usr/{bin,sbin,lib,lib64} "$root/control"
  for name in bin sbin lib lib64; do ln -s "usr/$name" "$root/$name"; done
  find "$archives" -name '*.deb' -print0 | sort -z |
    xargs -0 -P "$(nproc)" -n 8 bash -c 'set -o pipefail; unpack "$@"' unpack "$root" || return
  # maintainer scripts that choose between alternatives (cc, BLAS, MPI) are run later
  find "$archives" -name '*.deb' -exec sh -c '
    for deb; do name=${deb##*/}; name=${name%%_*}
      dpkg-deb -I "$deb" postinst 2>/dev/null >"$1.postinst" || continue
      grep -q "update-alternatives" "$1.postinst" && cp "$1.postinst" "$1/$name"
    done; rm -f "$1.postinst"' sh "$root/control" {} +
  :
}

# libkokkos-dev names static libraries of its header-only parts that it does not ship.
add_empty_archives() { # root
  local library
  grep -rhoE '\$\{_IMPORT_PREFIX\}/[^";]*\.a' "$1"/usr/lib/*/cmake/Kokkos/ 2>/dev/null | sort -u |
    while read -r library; do
      library=$1/usr/${library#*/}
      [[ -e $library ]] || printf '!<arch>\n' >"$library"
    done
}

# Files that the machine's own take the place of when the root is entered need to exist.
add_mount_points() { # root
  local name
  cp "$1/usr/share/base-passwd/passwd.master" "$1/etc/passwd"
  cp "$1/usr/share/base-passwd/group.master" "$1/etc/group"
  for name in resolv.conf hosts hostname nsswitch.conf machine-id; do
    [[ -e $1/etc/$name ]] || : >"$1/etc/$name"
  done
  mkdir -p "$1/usr/src" "$1/usr/local"
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
test -e "$(realpath /usr/lib/*/libblas.so)" && realpath /usr/lib/*/libblas.so | grep openmp
'

bwrap_of() { # root: the machine's bubblewrap, or the one in the root through its own loader
  local libraries
  libraries=$(echo "$1"/usr/lib/*-linux-gnu*)
  bwrap=("$(echo "$libraries"/ld-linux*)" --library-path "$libraries" "$1/usr/bin/bwrap")
  ! command -v bwrap >/dev/null || bwrap=(bwrap)
}

configure() { # root
  local user=()
  [[ $(id -u) == 0 ]] || user=(--unshare-user --uid 0 --gid 0)
  env -i PATH=/usr/sbin:/usr/bin HOME=/tmp LC_ALL=C.UTF-8 "${bwrap[@]}" "${user[@]}" --bind "$1" / --dev /dev --proc /proc \
    --tmpfs /tmp --unshare-pid --die-with-parent sh -c "$configure_inside"
}

build_root() { # final-folder package-list work-folder
  local final=$1 list=$2 work=$3 root=$3/root started=$SECONDS
  say "building the environment, once (about a minute and 2.5 GB in ${final%/*})"
  say "  reading the package lists of Debian"
  prepare_apt "$work/apt" $(sid_package_names "$list") || return 2
  say "  downloading"
  apt-get -q -y --download-only install '?essential' $(package_names "$list") || return 2
  say "  unpacking $(find "$work/apt/var/cache/apt/archives" -name '*.deb' | wc -l) packages"
  unpack_all "$root" "$work/apt/var/cache/apt/archives" || return
  bwrap_of "$root"
  "${bwrap[@]}" --ro-bind "$root" / --dev /dev true || return 3
  say "  configuring"
  add_empty_archives "$root"
  add_mount_points "$root"
  configure "$root" || return
  rm -rf "$root/control"
  basename "$final" >"$root/etc/minitaw-root"
  mv -T "$root" "$final" || return
  rm -rf "$work"
  say "environment ready after $((SECONDS - started)) s"
}
