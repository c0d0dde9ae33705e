# Finds a Debian mirror and its keys in the machine's own apt configuration, and gives apt a private
# state so that nothing outside the cache folder is touched.

# Mirrors that the machine itself uses for a Debian suite, one URI per line.
mirror_candidates() {
  [[ -z ${MINITAW_MIRROR:-} ]] || { echo "$MINITAW_MIRROR"; return; }
  local suites='stable|oldstable|testing|unstable|sid|bullseye|bookworm|trixie|forky'
  apt-get update --print-uris 2>/dev/null |
    sed -nE "s#^'([^']*)/dists/($suites)/InRelease'.*#\1#p" | awk '!seen[$0]++'
}

# Proxy, authentication and transport settings are the machine's; folders, hooks and pins are ours: with another `Dir` apt reads none of
# the machine's files.
write_apt_configuration() { # folder
  local apt=$1
  mkdir -p "$apt"/{etc/apt,var/lib/apt/lists/partial,var/lib/dpkg,var/cache/apt/archives/partial,var/log/apt}
  : >"$apt/var/lib/dpkg/status"
  {
    apt-config dump | grep -E '^Acquire::' | grep -vE '^Acquire::(IndexTargets|Languages|GzipIndexes)'
    cat <<END
Dir "$apt";
APT::Sandbox::User "root";
APT::Architecture "$(dpkg --print-architecture)";
APT::Architectures { "$(dpkg --print-architecture)"; };
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::Retries "3";
Debug::NoLocking "true";
END
  } >"$apt/apt.conf"
  export APT_CONFIG="$apt/apt.conf"
}

# Only the packages marked /sid come from sid, and only what they need there.
write_preferences() { # file names...
  local file=$1 name
  shift
  printf 'Package: *\nPin: release n=sid\nPin-Priority: 100\n\n' >"$file"
  for name; do printf 'Package: %s %s\nPin: release n=sid\nPin-Priority: 990\n\n' "$name" "${name%-dev}*"; done >>"$file"
}

debian_keyring() {
  local file
  for file in "${MINITAW_KEYRING:-}" /usr/share/keyrings/debian-archive-keyring.{pgp,gpg}; do
    [[ -n $file && -r $file ]] && echo "$file" && return
  done
}

write_sources() { # folder mirror suite...
  local apt=$1 mirror=$2 suite options keyring
  keyring=$(debian_keyring)
  shift 2
  for suite; do
    options="lang=none${keyring:+ signed-by=$keyring}"
    [[ $suite != sid ]] || options+=" check-valid-until=no" # it may be past its date on a mirror that is frozen or late
    echo "deb [$options] $mirror $suite main"
  done >"$apt/etc/apt/sources.list"
}

# An old machine may not know the keys of Debian 13: its own suite carries the newer keyring.
fetch_newer_keyring() { # folder mirror
  write_sources "$1" "$2" "$(. /etc/os-release && echo "${VERSION_CODENAME:-stable}")"
  apt-get -q update && (cd "$1" && apt-get -q download debian-archive-keyring) || return
  dpkg-deb -x "$1"/debian-archive-keyring_*.deb "$1/keys" || return
  MINITAW_KEYRING=$(ls "$1"/keys/usr/share/keyrings/debian-archive-keyring.* | head -1)
}

update_from() { # folder mirror
  write_sources "$1" "$2" trixie sid
  # apt tells of a missing signature by a warning only when older lists are there; there are none here.
  apt-get -q -o APT::Update::Error-Mode=any update
}

# Leaves APT_CONFIG set so that plain apt-get calls use the private state.
prepare_apt() { # apt-folder sid-package...
  local apt=$1 mirror mirrors
  shift
  mirrors=$(mirror_candidates) # before apt's configuration is ours
  write_apt_configuration "$apt"
  write_preferences "$apt/etc/apt/preferences" "$@"
  for mirror in $mirrors; do
    update_from "$apt" "$mirror" && return
    fetch_newer_keyring "$apt" "$mirror" && update_from "$apt" "$mirror" && return
  done
  return 1
}
