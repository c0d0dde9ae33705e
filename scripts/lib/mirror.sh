# Finds a Debian mirror and its keys in the machine's own apt configuration, and gives apt a private
# state so that nothing outside the cache folder is touched.

# Mirrors that the machine itself uses for a Debian suite, one URI per line.
mirror_candidates() {
  if [[ -n ${MINITAW_MIRROR:-} ]]; then
    echo "$MINITAW_MIRROR"
    return
  fi
  local suites='stable|oldstable|testing|unstable|sid|bullseye|bookworm|trixie|forky'
  apt-get update --print-uris 2>/dev/null |
    sed -nE "s#^'([^']*)/dists/($suites)/InRelease'.*#\1#p" | awk '!seen[$0]++'
}

# Proxy, authentication and transport settings are the machine's; folders, hooks and pins are ours.
write_apt_configuration() { # folder
  local apt=$1
  mkdir -p "$apt"/{etc,lists/partial,cache/archives/partial}
  : >"$apt/status"
  {
    apt-config dump | grep -E '^Acquire::' | grep -vE '^Acquire::(IndexTargets|Languages|GzipIndexes)'
    cat <<END
Dir::State "$apt";
Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
Dir::Log "$apt";
Dir::Etc::main "/dev/null";
Dir::Etc::parts "/dev/null";
Dir::Etc::sourcelist "$apt/etc/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "$apt/etc/preferences";
Dir::Etc::preferencesparts "/dev/null";
APT::Sandbox::User "root";
APT::Architecture "$(dpkg --print-architecture)";
APT::Architectures { "$(dpkg --print-architecture)"; };
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::Retries "3";
Debug::NoLocking "true";
END
  } >"$apt/apt.conf"
  # apt reads APT_CONFIG before the files of the machine, so hide those files as well.
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

# The index of sid may be past its Valid-Until date on a mirror that is frozen or late.
write_sources() { # file mirror keyring
  local signed=${3:+signed-by=$3}
  cat >"$1" <<END
deb [$signed] $2 trixie main
deb [$signed check-valid-until=no] $2 sid main
END
  sed -i 's/\[\] //' "$1"
}

# An old machine may not know the keys of Debian 13: its own suite carries the newer keyring.
fetch_newer_keyring() { # apt-folder mirror
  local apt=$1 mirror=$2 codename
  codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-stable}")
  write_sources "$apt/etc/sources.list" "$mirror" "$(debian_keyring)"
  sed -i "1s/ trixie / $codename /; 2d" "$apt/etc/sources.list"
  apt-get -q update && (cd "$apt" && apt-get -q download debian-archive-keyring) || return
  dpkg-deb -x "$apt"/debian-archive-keyring_*.deb "$apt/keys" || return
  MINITAW_KEYRING=$(ls "$apt"/keys/usr/share/keyrings/debian-archive-keyring.* | head -1)
}

update_from() { # apt-folder mirror
  write_sources "$1/etc/sources.list" "$2" "$(debian_keyring)"
  # apt tells of a missing signature by a warning only when older lists are there; there are none here.
  apt-get -q -o APT::Update::Error-Mode=any update
}

# Leaves APT_CONFIG set so that plain apt-get calls use the private state.
prepare_apt() { # apt-folder sid-package...
  local apt=$1 mirror mirrors
  shift
  mirrors=$(mirror_candidates)
  [[ -n $mirrors ]] || { echo "no Debian mirror in the apt configuration"; return 1; }
  write_apt_configuration "$apt"
  write_preferences "$apt/etc/preferences" "$@"
  for mirror in $mirrors; do
    update_from "$apt" "$mirror" && return
    fetch_newer_keyring "$apt" "$mirror" && update_from "$apt" "$mirror" && return
  done
  return 1
}
