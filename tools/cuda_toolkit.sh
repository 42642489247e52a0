#!/bin/sh
# If nvcc is not installed, makes a toolkit in .venv-cuda/toolkit from the wheels of
# cmake/requirements-cuda.txt.
# Usage: tools/cuda_toolkit.sh    cmake/Cuda.cmake looks for nvcc in the same places
set -eu
cd "$(dirname "$0")/.."
for nvcc in "${CUDACXX:-}" "$(command -v nvcc || true)" "${CUDA_HOME:-}/bin/nvcc" "${CUDA_PATH:-}/bin/nvcc" \
    /usr/local/cuda/bin/nvcc; do
  [ ! -x "$nvcc" ] || [ -d "$nvcc" ] || exit 0
done
venv=.venv-cuda
wanted=cmake/requirements-cuda.txt
! cmp -s "$wanted" "$venv/requirements.txt" || exit 0

if [ "$(uname -m)" != x86_64 ]; then
  echo "no nvcc found, and $wanted lists wheels for x86_64: install a CUDA toolkit of 12.8 or later" >&2
  exit 1
fi
echo "no nvcc found: making $venv from $wanted (105 MB to fetch)"
tools/install_packages.sh cuda
rm -rf "$venv"
python3 -m venv "$venv"
for pause in 10 60 ""; do
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r "$wanted" && break
  [ -n "$pause" ] || exit 1
  echo "that failed; again in $pause s" >&2
  sleep "$pause"
done
toolkit="$(echo "$PWD/$venv"/lib/python3*/site-packages/nvidia/cu13)"
ln -s lib "$toolkit/lib64"
ln -s "$toolkit" "$venv/toolkit"
"$venv/toolkit/bin/nvcc" --version >/dev/null
cp "$wanted" "$venv/requirements.txt"
