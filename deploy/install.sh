#!/bin/sh
# Installs sluice from an archive of `make dist`, without a compiler:
#
#   sh install.sh URL [PREFIX]        or with SLUICE_INSTALL_URL and PREFIX in the environment
#
# URL: folder of SHA256SUMS and the archive, with http://, https:// or file://. PREFIX: ~/.local by default. The archive is checked
# against SHA256SUMS before it is unpacked. If anything fails, nothing is installed, and an earlier installation stays unchanged.
# The program is copied to PREFIX/lib/sluice-dist, and PREFIX/bin/sluice links to it. Completions and the manual page are in
# PREFIX/share.
set -eu
umask 022

fail() {
  echo "install.sh: $*" >&2
  exit 1
}

main() {
  url="${1:-${SLUICE_INSTALL_URL:-}}"
  [ -n "$url" ] || fail "from where? Give the address of the folder with the archive and SHA256SUMS as argument or in SLUICE_INSTALL_URL"
  url="${url%/}"
  prefix="${2:-${PREFIX:-${HOME:?PREFIX or HOME must be set}/.local}}"
  case "$prefix" in
    /*) ;;
    *) prefix="$PWD/$prefix" ;;
  esac
  [ "$(uname -s)" = Linux ] || fail "expected Linux, found $(uname -s): build it from source there"
  machine="$(uname -m)"
  for tool in tar xz sha256sum; do
    command -v "$tool" >/dev/null || fail "$tool is needed and not there: install it (Debian: apt-get install xz-utils coreutils tar)"
  done
  mkdir -p "$prefix/lib" "$prefix/bin" || fail "$prefix cannot be written: give another PREFIX"
  # Unpack next to the final place, so that a single renaming installs the archive.
  work="$(mktemp -d "$prefix/lib/.sluice-install.XXXXXX")" || fail "$prefix/lib cannot be written: give another PREFIX"
  trap 'rm -rf "$work"; rmdir "$prefix/lib" "$prefix/bin" 2>/dev/null || :' EXIT
  trap 'exit 130' INT TERM HUP

  fetch "$url/SHA256SUMS" "$work/SHA256SUMS"
  # Lines are "HASH  NAME", or "HASH *NAME" from sha256sum --binary.
  line="$(grep -E "^[0-9a-f]{64} [ *]sluice-[0-9][^ /]*-linux-$machine\.tar\.xz\$" "$work/SHA256SUMS")" ||
    fail "$url/SHA256SUMS names no archive for $machine: expected sluice-VERSION-linux-$machine.tar.xz; found $(cut -c 67- "$work/SHA256SUMS" | head -n 5 | tr '\n' ' ')"
  [ "$(echo "$line" | wc -l)" = 1 ] || fail "$url/SHA256SUMS names several archives for $machine: expected one"
  expected="$(echo "$line" | cut -c -64)"
  archive="$(echo "$line" | cut -c 67-)"
  fetch "$url/$archive" "$work/archive.tar.xz"
  found="$(sha256sum "$work/archive.tar.xz" | cut -d ' ' -f 1)"
  [ "$found" = "$expected" ] ||
    fail "$url/$archive: SHA-256 expected $expected, found $found ($(wc -c <"$work/archive.tar.xz") bytes): nothing is installed; the file was cut short or is not the one that was published"

  mkdir "$work/new"
  tar --extract --file "$work/archive.tar.xz" --directory "$work/new" --strip-components=1 --no-same-owner || fail "$archive cannot be unpacked"
  "$work/new/bin/sluice" version >"$work/version" 2>&1 ||
    fail "the program does not start here: $(head -n 3 "$work/version"); expected Linux with glibc 2.36 or later (Debian 12, Ubuntu 24.04)"

  old="$prefix/lib/sluice-dist"
  [ ! -e "$old" ] || mv "$old" "$work/old"
  mv "$work/new" "$old" || {
    [ ! -e "$work/old" ] || mv "$work/old" "$old"
    fail "$old cannot be written"
  }
  ln -sfn ../lib/sluice-dist/bin/sluice "$prefix/bin/sluice"
  (cd "$old/share" && find . -type f) | while read -r file; do
    mkdir -p "$prefix/share/$(dirname "$file")"
    ln -sfn "$old/share/${file#./}" "$prefix/share/${file#./}"
  done
  echo "installed $(head -n 1 "$work/version") as $prefix/bin/sluice"
  case ":$PATH:" in
    *":$prefix/bin:"*) ;;
    *) echo "Put it on PATH:  export PATH=\"$prefix/bin:\$PATH\"" ;;
  esac
  echo "The names vllm and trtllm-serve are in $old/bin."
}

fetch() {
  if command -v curl >/dev/null; then
    curl --fail --silent --show-error --location --retry 3 --output "$2" "$1" || fail "$1 cannot be downloaded"
  elif command -v wget >/dev/null; then
    wget --quiet --output-document="$2" "$1" || fail "$1 cannot be downloaded"
  else
    fail "curl or wget is needed and neither is there"
  fi
}

# At the end, so that nothing is run if only a part of this file was downloaded.
main "$@"
