#!/bin/sh
# Makes build/dist/sluice_VERSION_ARCHITECTURE.deb for Debian 12 from a build and the folder that tools/dist.sh made from it. The
# package uses the system's libraries; dpkg-shlibdeps determines them. The same build gives the same bytes.
# Usage: tools/deb.sh [release|arm]
set -eu
umask 022
cd "$(dirname "$0")/.."
preset="${1:-release}"
build="build/$preset"

fail() {
  echo "tools/deb.sh: $*" >&2
  exit 1
}
. tools/dist_target.sh
version="$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")"
dist="build/dist/sluice-$version-linux-$machine"
[ -d "$dist" ] || fail "$dist is not there: run make dist DIST_PRESET=$preset"
when="$(tools/source_date.sh)"
# The contact that Debian's tools show; distributors set their own.
maintainer="${SLUICE_MAINTAINER:-sluice developers <sluice@packages.invalid>}"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
root="$work/root"
doc="$root/usr/share/doc/sluice"
mkdir -p "$root/usr/bin" "$root/usr/lib/sluice/bin" "$root/usr/share/sluice" "$root/lib/systemd/system" "$root/DEBIAN" "$doc" \
  "$root/usr/share/zsh/vendor-completions" "$root/usr/share/bash-completion" "$root/usr/share/fish" "$root/usr/share/man/man1"
"${tools}strip" --strip-unneeded --remove-section=.comment --remove-section=.note -o "$root/usr/bin/sluice" "$build/bin/sluice"
# Names of other programs, for users who add /usr/lib/sluice/bin to PATH.
ln -s ../../../bin/sluice "$root/usr/lib/sluice/bin/vllm"
ln -s ../../../bin/sluice "$root/usr/lib/sluice/bin/trtllm-serve"
cp -R "$dist/lib/sluice/python" "$root/usr/lib/sluice/python"
cp -R "$dist/models" "$root/usr/share/sluice/models"
cp -R "$dist/share/bash-completion/completions" "$root/usr/share/bash-completion/completions"
cp "$dist/share/zsh/site-functions/_sluice" "$root/usr/share/zsh/vendor-completions/_sluice"
cp -R "$dist/share/fish/vendor_completions.d" "$root/usr/share/fish/vendor_completions.d"
gzip -9n <"$dist/share/man/man1/sluice.1" >"$root/usr/share/man/man1/sluice.1.gz"
cp deploy/systemd/sluice.service "$root/lib/systemd/system/sluice.service"

cp -R docs README.md "$doc/"
gzip -9n <CHANGELOG.md >"$doc/NEWS.md.gz"
printf 'sluice (%s) bookworm; urgency=medium\n\n  * See NEWS.md.gz.\n\n -- %s  %s\n' \
  "$version" "$maintainer" "$(LC_ALL=C date -u -R -d "@$when")" | gzip -9n >"$doc/changelog.gz"
{
  cat <<'END'
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: the authors of sluice
License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.

END
  echo "Comment: What is compiled in has these licences:"
  for part in xgrammar-notice picojson libboost1.81-dev libexpected-dev; do
    sed -e "1i == $part" -e 's/^[[:space:]]*$/./' "$dist/licenses/$part.txt" | sed 's/^/ /'
  done
  echo ' == xgrammar, dlpack'
  echo ' Apache-2.0, see above.'
} >"$doc/copyright"

# Dependencies on the packages of the program's libraries, determined by dpkg-shlibdeps.
mkdir "$work/debian"
library_folders=""
[ -z "$sysroot" ] || library_folders="-l$sysroot/usr/lib/aarch64-linux-gnu -l$sysroot/lib/aarch64-linux-gnu"
printf 'Source: sluice\n\nPackage: sluice\nArchitecture: any\n' >"$work/debian/control"
depends="$(cd "$work" && DEB_HOST_ARCH="$architecture" dpkg-shlibdeps $database $library_folders -O -eroot/usr/bin/sluice | sed -n 's/^shlibs:Depends=//p')"
[ -n "$depends" ] || fail "dpkg-shlibdeps found no libraries that $build/bin/sluice needs"
# Size of the installed files, as dpkg counts it.
kib="$(du -k --apparent-size -s "$root" | cut -f1)"
cat >"$root/DEBIAN/control" <<END
Package: sluice
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $kib
Depends: $depends
Recommends: ca-certificates
Section: science
Priority: optional
Description: server of large language models behind the OpenAI API
 One native program that takes a Hugging Face checkpoint as it is published
 and answers the OpenAI API, with continuous batching, a paged cache of keys
 and values, prefix caching and chunked prefill. It takes the command lines of
 vllm serve and trtllm-serve under those names, in /usr/lib/sluice/bin.
 .
 A unit of systemd is installed and not enabled: it reads
 /etc/sluice/sluice.yaml.
END
(cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' md5sum) >"$work/md5sums"
cp "$work/md5sums" "$root/DEBIAN/md5sums"
chmod -R u=rwX,go=rX "$root"
find "$root" -exec touch --no-dereference --date="@$when" {} +
package="build/dist/sluice_${version}_${architecture}.deb"
SOURCE_DATE_EPOCH="$when" dpkg-deb --root-owner-group -Zxz --build "$root" "$package" >/dev/null
tools/checksums.sh
echo "$package: $(stat -c %s "$package") bytes; needs $depends"
