#!/bin/sh
# Installs the Debian packages of packages.txt that the named steps need and this machine lacks.
# Usage: tools/install_packages.sh STEP...
set -eu
list="$(dirname "$0")/../packages.txt"
wanted=""
for step in "$@"; do
  wanted="$wanted $(awk -v step="$step" '!/^#/ && $2 == step {print $1}' "$list")"
done
if ! command -v dpkg-query >/dev/null; then
  echo "not a Debian system: install what corresponds to:$wanted" >&2
  exit 1
fi
missing=""
for package in $wanted; do
  case "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)" in
    installed) ;;
    *) missing="$missing $package" ;;
  esac
done
[ -n "$missing" ] || exit 0

sudo=""
[ "$(id -u)" = 0 ] || sudo="sudo"
echo "installing Debian packages:$missing"
# Try again, because mirrors fail temporarily, and another program may hold the lock.
for pause in 10 60 ""; do
  $sudo apt-get -o Acquire::Retries=3 update -qq &&
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 \
      install -y --no-install-recommends $missing && exit 0
  [ -z "$pause" ] || { echo "that failed; again in $pause s" >&2; sleep "$pause"; }
done
exit 1
