#!/bin/sh
# Fetches the source archive that cmake/requirements-xgrammar.txt pins by its hash, and unpacks it.
# Usage: tools/xgrammar_source.sh FOLDER    cmake/Xgrammar.cmake calls this; does nothing if FOLDER exists
set -eu
root="$(cd "$(dirname "$0")/.." && pwd)"
folder="$1"
wanted="$root/cmake/requirements-xgrammar.txt"
[ ! -e "$folder/include/xgrammar/xgrammar.h" ] || exit 0

fail() {
  echo "tools/xgrammar_source.sh: $*" >&2
  exit 1
}
command -v python3 >/dev/null || fail "python3 with venv is needed to fetch what $wanted names: run tools/install_packages.sh build"
mkdir -p "$(dirname "$folder")"
work="$(mktemp -d "$folder.XXXXXX")"
trap 'rm -rf "$work"' EXIT

# After the download, pip reads the archive's metadata, which would install and execute the archive's build backend. This
# stub backend of the same name replaces it.
mkdir -p "$work/backend/scikit_build_core"
cat >"$work/backend/scikit_build_core/build.py" <<'END'
import pathlib


def prepare_metadata_for_build_wheel(folder, config_settings=None):
    metadata = pathlib.Path("PKG-INFO").read_text()
    version = next(line for line in metadata.splitlines() if line.startswith("Version: ")).split(": ")[1]
    info = pathlib.Path(folder, "xgrammar-%s.dist-info" % version)
    info.mkdir()
    (info / "METADATA").write_text(metadata)
    return info.name
END
pip="python3 -m pip"
if ! $pip --version >/dev/null 2>&1; then
  python3 -m venv "$work/venv" || fail "python3 has neither pip nor venv: run tools/install_packages.sh build"
  pip="$work/venv/bin/python -m pip"
fi
for pause in 5 30 ""; do
  PYTHONPATH="$work/backend" $pip download --quiet --disable-pip-version-check --no-deps --no-build-isolation \
    --no-binary :all: --require-hashes --dest "$work" -r "$wanted" && break
  [ -n "$pause" ] || fail "cannot fetch what $wanted names (see above): expected a package index that pip reaches, or the
  unpacked source archive in $folder"
  echo "that failed; again in $pause s" >&2
  sleep "$pause"
done
mkdir "$work/source"
tar -xzf "$work"/xgrammar-*.tar.gz -C "$work/source" --strip-components=1
# Another build, configured at the same time, may have made the folder.
mv -T "$work/source" "$folder" 2>/dev/null || [ -e "$folder/include/xgrammar/xgrammar.h" ] || fail "cannot write $folder"
