# Flags that make faults in the program harder to exploit, and keep build paths out of it. They apply to the program's
# own code. Tests are compiled without them, as are sanitizer builds, which find faults by other means.
# tests/e2e/test_program_file.py checks these properties in the program file.
add_library(sluice_hardening INTERFACE)
if(NOT SLUICE_SANITIZE)
  target_compile_options(sluice_hardening INTERFACE -fPIE -fstack-protector-strong
    # glibc checks the sizes of copies that an optimising compiler can determine.
    "$<$<CONFIG:Release,RelWithDebInfo,MinSizeRel>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=3>"
    # Messages name source files relative to the root of the tree.
    "-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=" "-ffile-prefix-map=${CMAKE_BINARY_DIR}/=")
  if(SLUICE_X86)
    target_compile_options(sluice_hardening INTERFACE -fcf-protection=full)
  elseif(SLUICE_AARCH64)
    target_compile_options(sluice_hardening INTERFACE -mbranch-protection=standard)
  endif()
  set(SLUICE_HARDENED_LINK -pie LINKER:-z,relro,-z,now,-z,noexecstack)
endif()

# No library search path in the program: a library could be loaded from a folder that somebody else can write to.
# Libraries are found where the system looks for them. Only the program for tools/dist.sh has a search path (src/cli).
set(CMAKE_SKIP_BUILD_RPATH ON)
