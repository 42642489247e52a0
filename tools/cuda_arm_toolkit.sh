#!/bin/sh
# Makes a CUDA toolkit in FOLDER that compiles for Arm hosts on x86-64. It has links to the programs and headers of the installed
# toolkit, which are the same for both hosts, and the static runtime for aarch64 from the wheel of
# cmake/requirements-cuda-arm.txt. Does nothing if FOLDER was made from the same toolkit and wheel.
# Usage: tools/cuda_arm_toolkit.sh NVCC FOLDER    FOLDER/bin/nvcc then accepts aarch64-linux-gnu-g++ as its host compiler
set -eu
fail() {
  echo "tools/cuda_arm_toolkit.sh: $*" >&2
  exit 1
}
# Ask the compiler for its folder: $1 may be a script in another folder that starts it.
found="$("$1" --dryrun anything.cu 2>&1 | sed -n 's/^#\$ _HERE_=//p' || true)"
[ -x "$found/nvcc" ] || fail "$1 --dryrun names no folder that contains nvcc: expected CUDA's compiler; name another with CUDACXX"
nvcc="$(realpath "$found/nvcc")"
folder="$(realpath -m "$2")"
wanted="$(realpath "$(dirname "$0")/../cmake/requirements-cuda-arm.txt")"
toolkit="$(dirname "$(dirname "$nvcc")")"
if cmp -s "$wanted" "$folder/requirements.txt" && [ "$(readlink "$folder/bin/nvcc")" = "$nvcc" ]; then exit 0; fi

# A program must link with the runtime of the toolkit that compiled it.
runtime="$(sed -n 's/^nvidia-cuda-runtime==\([0-9]*\.[0-9]*\)\..*/\1/p' "$wanted")"
release="$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')"
[ "$release" = "$runtime" ] || fail "$nvcc is of CUDA $release, and $wanted names the runtime of $runtime: expected the same; name another nvcc with CUDACXX"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
echo "fetching CUDA's runtime for aarch64 into $folder"
python3 -m venv "$work/venv"
for pause in 10 60 ""; do
  "$work/venv/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
    --platform manylinux_2_17_aarch64 --dest "$work" -r "$wanted" && break
  [ -n "$pause" ] || fail "cannot fetch the wheel of $wanted (see above)"
  echo "that failed; again in $pause s" >&2
  sleep "$pause"
done
target="$folder/targets/aarch64-linux"
rm -rf "$folder"
mkdir -p "$target/lib"
"$work/venv/bin/python" - "$work"/*.whl "$target/lib" <<'END'
import pathlib, sys, zipfile
wheel, folder = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    for name in ("libcudart_static.a", "libcudadevrt.a"):
        (pathlib.Path(folder) / name).write_bytes(archive.read("nvidia/cu13/lib/" + name))
END
ln -s "$toolkit/include" "$target/include"
ln -s "$toolkit/nvvm" "$folder/nvvm"
# A real folder, not a link: nvcc finds the rest of the toolkit in the folder that contains this one.
mkdir "$folder/bin"
ln -s "$toolkit"/bin/* "$folder/bin/"
cp "$wanted" "$folder/requirements.txt"
