# What makes a fault in the program harder to exploit, and keeps the paths of the build out of it: for what the program is
# made of. Tests are compiled without it, and sanitizers find faults by other means.
# tests/e2e/test_program_file.py reads all of this from the program.
add_library(sluice_hardening INTERFACE)
if(NOT SLUICE_SANITIZE)
  target_compile_options(sluice_hardening INTERFACE -fPIE -fstack-protector-strong
    # glibc checks the sizes of copies where an optimising compiler can tell them.
    "$<$<CONFIG:Release,RelWithDebInfo,MinSizeRel>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=3>"
    # Messages name sources from the root of the tree.
    "-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=" "-ffile-prefix-map=${CMAKE_BINARY_DIR}/=")
  if(SLUICE_X86)
    target_compile_options(sluice_hardening INTERFACE -fcf-protection=full)
  elseif(SLUICE_AARCH64)
    target_compile_options(sluice_hardening INTERFACE -mbranch-protection=standard)
  endif()
  set(SLUICE_HARDENED_LINK -pie LINKER:-z,relro,-z,now,-z,noexecstack)
endif()

# A folder named in a program is one from which a stranger's library may be loaded: libraries are where the system looks
# for them. What tools/dist.sh packs names one all the same (src/cli).
set(CMAKE_SKIP_BUILD_RPATH ON)
