#!/bin/sh
# Unpacks Debian's arm64 packages into a folder: the libraries listed for the step `build` in packages.txt, and their
# dependencies. cmake/Arm.cmake compiles against it, and qemu-aarch64 finds the libraries there. Nothing is installed on
# this machine: apt uses a separate state folder. var/lib/dpkg in the folder is a database for dpkg-query and
# dpkg-shlibdeps (--admindir), in which files have the paths that they have on this machine.
# Usage: tools/arm_sysroot.sh FOLDER    does nothing if FOLDER was made from the same list
set -eu
folder="$(realpath -m "$1")"
list="$(dirname "$0")/../packages.txt"
packages="libc6-dev libstdc++6 $(awk '!/^#/ && $2 == "build" && $1 ~ /^lib/ {print $1}' "$list" | sort | tr '\n' ' ')"
if [ "$(cat "$folder/packages" 2>/dev/null)" = "$packages" ] && [ -e "$folder/var/lib/dpkg/status" ]; then exit 0; fi

fail() {
  echo "tools/arm_sysroot.sh: $*" >&2
  exit 1
}
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || fail "apt-get and dpkg-deb are needed: expected a Debian 12 system"
mkdir -p "$(dirname "$folder")"
work="$(mktemp -d "$folder.XXXXXX")"
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/apt/lists/partial" "$work/apt/cache/archives/partial" "$work/root"
: >"$work/apt/status"
apt_get() {
  apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$work/apt" -o Dir::State::status="$work/apt/status" \
    -o Dir::Cache="$work/apt/cache" -o Debug::NoLocking=true -o Acquire::Retries=3 -o APT::Sandbox::User="$(id -un)" \
    -o APT::Install-Recommends=false "$@"
}
echo "fetching Debian's arm64 packages for $folder"
for pause in 10 60 ""; do
  apt_get -qq update && apt_get -qq -y --download-only install $packages >"$work/log" && break
  [ -n "$pause" ] || fail "cannot fetch the packages (see above): expected a Debian 12 mirror that has arm64"
  echo "that failed; again in $pause s" >&2
  sleep "$pause"
done
database="$work/root/var/lib/dpkg"
mkdir -p "$database/info" "$database/updates"
echo 1 >"$database/info/format"
for package in "$work"/apt/cache/archives/*.deb; do
  dpkg-deb --extract "$package" "$work/root"
  name="$(dpkg-deb --field "$package" Package)"
  [ "$(dpkg-deb --field "$package" Multi-Arch)" != same ] || name="$name:arm64"
  printf '%s\nStatus: install ok installed\n\n' "$(dpkg-deb --field "$package")" >>"$database/status"
  dpkg-deb --fsys-tarfile "$package" | tar --list | sed -n "s|^\./\(.*[^/]\)/*\$|$folder/\1|p" >"$database/info/$name.list"
  dpkg-deb --control "$package" "$work/control"
  for file in shlibs symbols; do
    [ ! -e "$work/control/$file" ] || mv "$work/control/$file" "$database/info/$name.$file"
  done
  rm -r "$work/control"
done
# Absolute links would lead out of the folder.
find "$work/root" -type l -lname '/*' | while read -r link; do
  ln -sfn -r "$work/root$(readlink "$link")" "$link"
done
printf '%s' "$packages" >"$work/root/packages"
rm -rf "$folder"
mv -T "$work/root" "$folder"
