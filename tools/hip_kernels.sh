#!/bin/sh
# Compiles every kernel of src/kernels/cuda for an AMD GPU, into build/hip, with Clang and LLD of one version and neither HIP's
# headers nor its libraries. Usage: tools/hip_kernels.sh [--check] [ARCHITECTURE]    default: gfx942
# --check makes no code: seconds in place of minutes.
set -eu
cd "$(dirname "$0")/.."
check=""
if [ "${1:-}" = --check ]; then
  check=yes
  shift
fi
architecture="${1:-gfx942}"
clang="${HIP_CLANG:-clang++-19}"
command -v "$clang" >/dev/null || { echo "$clang was not found: tools/install_packages.sh hip, or name another with HIP_CLANG" >&2; exit 1; }
mkdir -p build/hip
export clang architecture check
count="$(ls src/kernels/cuda/*.cu | wc -l)"
ls src/kernels/cuda/*.cu | xargs -P "$(nproc)" -I{} sh -c '
  name="$(basename {} .cu)"
  set -- "$clang" -x hip --offload-arch="$architecture" --cuda-device-only -nogpulib -nogpuinc -std=c++20 -O3 -DNDEBUG -Wall -Wextra -Werror -Wno-pass-failed -Isrc {}
  if [ -n "$check" ]; then
    "$@" -fsyntax-only || exit 255
    exit 0
  fi
  "$@" -Xoffload-linker --unresolved-symbols=ignore-all -c -o "build/hip/$name.o.partial" && mv "build/hip/$name.o.partial" "build/hip/$name.o" || exit 255'
[ -z "$check" ] || { echo "$count files of kernels are right for $architecture"; exit 0; }
echo "$count files of kernels compiled for $architecture, in build/hip; nothing launches them yet (docs/cuda.md)"
