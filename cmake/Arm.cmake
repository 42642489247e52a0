# The toolchain of the preset `arm`: cross-compiles for aarch64 Linux with Debian's cross compiler and the libraries
# that tools/arm_sysroot.sh unpacks. Programs that run during build and tests (ctest, tests/run.py) run under qemu-user.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

set(CMAKE_SYSROOT ${CMAKE_CURRENT_LIST_DIR}/../build/arm-sysroot)
get_filename_component(CMAKE_SYSROOT ${CMAKE_SYSROOT} ABSOLUTE)
execute_process(COMMAND ${CMAKE_CURRENT_LIST_DIR}/../tools/arm_sysroot.sh ${CMAKE_SYSROOT} RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "no libraries for aarch64 in ${CMAKE_SYSROOT}, and they cannot be fetched (see above)")
endif()
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)

# Emulates a CPU with every extension that QEMU knows; the environment variable QEMU_CPU selects another.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${CMAKE_SYSROOT})
