#!/bin/sh
# Prints the path of promtool, which checks rules for Prometheus: either the one in PATH, or the one from Debian's
# package, which is unpacked into a folder. The package is not installed, because it would start a server. Needs no
# root, because apt uses a separate state folder.
# Usage: tools/promtool.sh FOLDER
set -eu
folder="$(realpath -m "$1")"
if command -v promtool; then exit 0; fi
if [ -x "$folder/promtool" ]; then
  echo "$folder/promtool"
  exit 0
fi

fail() {
  echo "tools/promtool.sh: $*" >&2
  exit 1
}
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || fail "promtool is not in PATH: expected it, or a Debian system to fetch it for"
mkdir -p "$(dirname "$folder")"
work="$(mktemp -d "$folder.XXXXXX")"
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/apt/lists/partial" "$work/apt/cache/archives/partial" "$work/root" "$work/new"
: >"$work/apt/status"
apt_get() {
  apt-get -qq -o Dir::State="$work/apt" -o Dir::State::status="$work/apt/status" -o Dir::Cache="$work/apt/cache" -o Debug::NoLocking=true \
    -o Acquire::Retries=3 -o APT::Sandbox::User="$(id -un)" "$@" >&2
}
# Try again, because mirrors fail temporarily.
for pause in 10 60 ""; do
  apt_get update && (cd "$work" && apt_get download prometheus) && break
  [ -n "$pause" ] || fail "cannot fetch Debian's package prometheus (see above)"
  echo "that failed; again in $pause s" >&2
  sleep "$pause"
done
dpkg-deb --extract "$work"/prometheus_*.deb "$work/root"
mv "$work/root/usr/bin/promtool" "$work/new"
rm -rf "$folder"
mv -T "$work/new" "$folder"
echo "$folder/promtool"
