# Build options: warnings, sanitizers, optimisation.
set(SLUICE_SANITIZE "" CACHE STRING "Sanitizers to build with: empty, 'address,undefined' or 'thread'")
option(SLUICE_WERROR "Treat warnings as errors" ON)
option(SLUICE_CUDA "Build the CUDA backend; needs nvcc (cmake/Cuda.cmake)" OFF)
option(SLUICE_HIP "Build the kernels for AMD GPUs; needs Clang 22 (cmake/Hip.cmake)" OFF)
option(SLUICE_UNITY "Compile the sources of a library in batches, so that a whole build parses headers less often" ON)
set(SLUICE_UNITY_BATCH 30 CACHE STRING "How many sources of a library are compiled at a time; fewer are better after a change of one")
option(SLUICE_FUZZ "Build the fuzz targets with libFuzzer (target fuzzers); needs Clang" OFF)
set(SLUICE_PLAIN_BUILD "" CACHE PATH "With SLUICE_CUDA: a finished build without it, to link against (src/cli)")

string(REGEX MATCH "x86_64|AMD64" SLUICE_X86 "${CMAKE_SYSTEM_PROCESSOR}")
string(REGEX MATCH "aarch64|arm64" SLUICE_AARCH64 "${CMAKE_SYSTEM_PROCESSOR}")

add_library(sluice_flags INTERFACE)
target_include_directories(sluice_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
# False positives of GCC 12: overlapping copies in std::string's operator+ (its bug 105651), and uninitialised values
# in std::variant and std::optional after much inlining.
target_compile_options(sluice_flags INTERFACE -Wall -Wextra $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict -Wno-maybe-uninitialized>)
if(SLUICE_UNITY)
  # GCC treats a source file that another one includes as a header, and then warns about types with members from an
  # anonymous namespace.
  target_compile_options(sluice_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  # Minimum heap in KiB before GCC collects garbage. Collection takes 5 % of its time, which is wasted in a
  # short-lived process.
  target_compile_options(sluice_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=1048576>)
endif()
if(SLUICE_WERROR)
  target_compile_options(sluice_flags INTERFACE -Werror)
endif()
# No contraction of products and sums unless a kernel asks for a fused operation: the arithmetic of an output element
# must not depend on how the compiler vectorised the loop around it.
target_compile_options(sluice_flags INTERFACE -ffp-contract=off)
if(SLUICE_SANITIZE)
  target_compile_options(sluice_flags INTERFACE -fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(sluice_flags INTERFACE -fsanitize=${SLUICE_SANITIZE})
endif()
if(SLUICE_FUZZ)
  # Ignore unknown warning names: some of GCC's have other names in Clang.
  target_compile_options(sluice_flags INTERFACE -fsanitize=fuzzer-no-link -Wno-unknown-warning-option)
  add_custom_target(fuzzers)
endif()
