#!/bin/sh
# Compiles kernels of src/kernels/cuda for AMD GPUs, with Clang and LLD of one version, without HIP's headers and libraries.
# Usage: tools/hip_kernels.sh [--check] [ARCHITECTURE]...       every kernel, into build/hip-kernels; default: gfx942 gfx950
#        tools/hip_kernels.sh --code ARCHITECTURE SOURCE CODE DEPENDENCIES         one file's machine code
#        tools/hip_kernels.sh --host SOURCE BUNDLE OBJECT DEPENDENCIES             its launchers, with the machine code inside
# --check only checks the sources and generates no code, which takes seconds instead of minutes.
set -eu
root="$(cd "$(dirname "$0")/.." && pwd)"
clang="${HIP_CLANG:-clang++-22}"
command -v "$clang" >/dev/null || { echo "$clang was not found: tools/install_packages.sh hip, or name another with HIP_CLANG" >&2; exit 1; }
# The compiler fuses products and sums only where the source requests it, because every device must sample the same tokens
# (draw_weights.h).
both="-x hip -nogpulib -nogpuinc -std=c++20 -DNDEBUG -ffp-contract=off -Wall -Wextra -Werror -Wno-pass-failed -I$root/src"
device="$both -O3 --cuda-device-only --no-gpu-bundle-output -mcode-object-version=5"

case "${1:-}" in
--code)
  exec "$clang" $device --offload-arch="$2" -Xclang -dependency-file -Xclang "$5" -Xclang -MT -Xclang "$4" -c "$3" -o "$4"
  ;;
--host)
  exec "$clang" $both -O2 -fPIE -fstack-protector-strong -fcf-protection=full --cuda-host-only --no-offload-new-driver --offload-arch=gfx942 \
    -Xclang -fcuda-include-gpubinary -Xclang "$3" -MD -MF "$5" -MT "$4" -c "$2" -o "$4"
  ;;
esac
check=""
if [ "${1:-}" = --check ]; then
  check="-fsyntax-only"
  shift
fi
[ $# -gt 0 ] || set -- gfx942 gfx950
mkdir -p "$root/build/hip-kernels"
cd "$root"
export clang device check
for architecture; do
  ls src/kernels/cuda/*.cu | xargs -P "$(nproc)" -I{} sh -c '
    code="build/hip-kernels/$(basename {} .cu).'"$architecture"'.co"
    if [ -n "$check" ]; then
      "$clang" $device --offload-arch='"$architecture"' $check {} || exit 255
    else
      "$clang" $device --offload-arch='"$architecture"' -c {} -o "$code.partial" && mv "$code.partial" "$code" || exit 255
    fi'
done
count="$(ls src/kernels/cuda/*.cu | wc -l)"
if [ -n "$check" ]; then
  echo "$count files of kernels are right for $*"
else
  echo "$count files of kernels compiled for $*, in build/hip-kernels"
fi
