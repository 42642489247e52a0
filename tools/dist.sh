#!/bin/sh
# Makes build/dist/NAME and NAME.tar.xz: the program of a build, the libraries that it needs in addition to glibc, the bundled
# model, licences, documents, completions, the manual page. The folder works at any place on a Linux system with that processor
# architecture and glibc 2.36 or later. Packing the same build of the same commit again gives the same bytes; SHA256SUMS in the
# same folder contains their digests.
# Usage: tools/dist.sh [release|cuda|arm|cuda-arm]    arm, cuda-arm: for aarch64, cross-compiled; the program is started under qemu
set -eu
umask 022
cd "$(dirname "$0")/.."
preset="${1:-release}"
build="build/$preset"
newest_glibc=2.36
most_bytes=$((60 * 1024 * 1024))
# Libraries that belong to glibc; all other libraries are packed.
glibc_libraries='^(ld-linux-x86-64\.so\.2|ld-linux-aarch64\.so\.1|libc\.so\.6|libm\.so\.6|libdl\.so\.2|librt\.so\.1|libpthread\.so\.0|libresolv\.so\.2)$'

fail() {
  echo "tools/dist.sh: $*" >&2
  exit 1
}
# Sets the paths of libraries and their packages, the tools for object files, and the emulator, if any.
. tools/dist_target.sh
[ -x "$build/bin/sluice" ] || fail "$build/bin/sluice is not there: expected a finished build; run make dist DIST_PRESET=$preset"

# The program reports the commit at which CMake last configured the build, so configure again.
cmake --preset "$preset" --log-level=WARNING >/dev/null
# sluice_portable is the program with a search path: it looks for its libraries in ../lib first.
cmake --build "$build" --target sluice sluice_portable >/dev/null

version="$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")"
name="sluice-$version-linux-$machine"
case "$preset" in cuda | cuda-arm) name="$name-cuda" ;; esac
folder="build/dist/$name"
rm -rf "$folder" "$folder.tar.xz"
mkdir -p "$folder/lib" "$folder/licenses"
cmake --install "$build" --prefix "$PWD/$folder" >/dev/null
"${tools}strip" -o "$folder/bin/sluice" "$build/bin/sluice_portable"
cp -R models "$folder/models"
cp -R docs "$folder/docs"
# The tools that test and measure the program on a machine with a GPU.
mkdir -p "$folder/tools" "$folder/benchmarks"
cp tools/gpu_report.sh tools/gpu_report.py "$folder/tools/"
cp -R benchmarks/llama-3.3-70b-fp8-shape "$folder/benchmarks/"
cp README.md LICENSE CHANGELOG.md "$folder/"
mkdir -p "$folder/share/bash-completion/completions" "$folder/share/zsh/site-functions" \
  "$folder/share/fish/vendor_completions.d" "$folder/share/man/man1"
$emulator "$build/bin/sluice" completion bash >"$folder/share/bash-completion/completions/sluice"
$emulator "$build/bin/sluice" completion zsh >"$folder/share/zsh/site-functions/_sluice"
$emulator "$build/bin/sluice" completion fish >"$folder/share/fish/vendor_completions.d/sluice.fish"
$emulator "$build/bin/sluice" help --man >"$folder/share/man/man1/sluice.1"

# Copies the libraries, under the names that the loader looks for, and the licences of their packages and of the headers
# that are compiled in. THIRD_PARTY.txt lists all of them.
third_party="$folder/licenses/THIRD_PARTY.txt"
cat >"$third_party" <<END
What sluice $version is made of beside its own source: the version, and in this folder the text of the licence. Packages are
those of Debian 12, whose texts tell copyright holders; a text that refers to /usr/share/common-licenses means the files
*.license here.

Shared libraries, in ../lib:
END
needed="$(loaded "$build/bin/sluice" | awk '$2 == "=>" {print $1 "=" $3}')"
owners=""
for item in $needed; do
  soname="${item%%=*}"
  file="$sysroot${item#*=}"
  if echo "$soname" | grep -Eq "$glibc_libraries"; then continue; fi
  [ -f "$file" ] || fail "$build/bin/sluice needs $soname, which this machine does not have"
  cp -L "$file" "$folder/lib/$soname"
  "${tools}strip" --strip-unneeded "$folder/lib/$soname"
  real="$(realpath "$file")"
  owner="$(package_query --search "$real" 2>/dev/null || package_query --search "${real#/usr}" 2>/dev/null)" || fail "$real is of no Debian package"
  owners="$owners ${owner%%:*}"
done
# Appends the versions of packages, and copies their licences.
list_packages() {
  for package in $(printf '%s\n' "$@" | sort -u); do
    cp -L "$sysroot/usr/share/doc/$package/copyright" "$folder/licenses/$package.txt"
    printf '  %-28s %-24s %s\n' "$package" "$(package_query -W -f '${Version}' "$package")" "$package.txt" >>"$third_party"
  done
}
list_packages $owners
printf '\nCompiled into the program:\n' >>"$third_party"
list_packages libboost1.81-dev libexpected-dev
xgrammar="$(sed -n 's/^SLUICE_XGRAMMAR_SOURCE:PATH=//p' "$build/CMakeCache.txt")"
cp "$xgrammar/3rdparty/dlpack/LICENSE" "$folder/licenses/dlpack.txt"
# The licence of picojson is the comment at the beginning of its header.
sed '/\*\//q' "$xgrammar/3rdparty/picojson/picojson.h" >"$folder/licenses/picojson.txt"
grep -q 'Redistribution and use' "$folder/licenses/picojson.txt" || fail "$xgrammar/3rdparty/picojson/picojson.h does not begin with its licence"
xgrammar_version="${xgrammar##*-}"
printf '  %-28s %-24s %s\n' xgrammar "$xgrammar_version" "xgrammar.txt, xgrammar-notice.txt" \
  "dlpack, picojson" "as in xgrammar" "dlpack.txt, picojson.txt" >>"$third_party"
# Some packages refer to Debian's copies of common licences.
for license in $(cat "$folder"/licenses/*.txt | grep -o '/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]' | sort -u); do
  cp -L "$license" "$folder/licenses/$(basename "$license").license"
done
if grep -q '^SLUICE_CUDA:BOOL=ON' "$build/CMakeCache.txt"; then
  cat >"$folder/licenses/cuda-runtime.txt" <<END
The program holds the CUDA runtime (libcudart_static), Copyright NVIDIA Corporation, which the End User License
Agreement of the CUDA toolkit, Attachment A, lets be distributed with programs: docs.nvidia.com/cuda/eula.
END
fi

# Each needed library must be in the folder or belong to glibc, and must not need a later glibc than newest_glibc.
for file in "$folder/bin/sluice" "$folder"/lib/*.so*; do
  for needed in $("${tools}objdump" -p "$file" | awk '$1 == "NEEDED" {print $2}'); do
    [ -e "$folder/lib/$needed" ] || echo "$needed" | grep -Eq "$glibc_libraries" || fail "$file needs $needed, which is not there"
  done
  newest="$("${tools}objdump" -T "$file" | grep -o 'GLIBC_[0-9.]*' | sort -u -V | tail -n 1 | cut -d_ -f2)"
  [ "$(printf '%s\n' "$newest" "$newest_glibc" | sort -V | tail -n 1)" = "$newest_glibc" ] ||
    fail "$file needs glibc $newest: expected $newest_glibc at most; build on Debian 12"
done
[ "$("${tools}objdump" -p "$folder/bin/sluice" | awk '$1 ~ /^R(UN)?PATH$/ {print $1 "=" $2}')" = 'RPATH=$ORIGIN/../lib' ] ||
  fail "$folder/bin/sluice does not look for its libraries in ../lib"

when="$(tools/source_date.sh)"
# A fixed number of threads: the compressed bytes differ between one thread and several.
tar --create --directory build/dist --format=gnu --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime="@$when" \
  "$name" | xz --threads=2 >"$folder.tar.xz"
bytes="$(stat -c %s "$folder.tar.xz")"
[ "$bytes" -le "$most_bytes" ] || fail "$folder.tar.xz has $bytes bytes: expected $most_bytes at most"
env -i PATH="$PATH" $emulator "$folder/bin/sluice" version >/dev/null || fail "$folder/bin/sluice does not start"
tools/checksums.sh
echo "$folder.tar.xz: $bytes bytes; unpacked $(du -sm "$folder" | cut -f1) MiB"
