# Sourced by tools/dist.sh and tools/deb.sh, which set `preset`. Sets what differs between a program for this machine
# and a cross-compiled one.
case "$preset" in
  arm | cuda-arm)
    machine=aarch64
    architecture=arm64
    tools=aarch64-linux-gnu-
    sysroot="$PWD/build/arm-sysroot"
    database="--admindir=$sysroot/var/lib/dpkg"
    emulator="qemu-aarch64 -L $sysroot"
    loaded() { $emulator -E LD_TRACE_LOADED_OBJECTS=1 "$1"; }
    ;;
  *)
    machine="$(uname -m)"
    architecture="$(dpkg --print-architecture)"
    tools=""
    sysroot=""
    database=""
    emulator=""
    loaded() { ldd "$1"; }
    ;;
esac
package_query() { dpkg-query $database "$@"; }
