# The CUDA toolkit, if SLUICE_CUDA is on: nvcc for the kernels, the headers, and the runtime as a static library, so
# that the program starts without any CUDA library.
set(SLUICE_CUDA_NEEDED 12.8)

if(NOT CMAKE_CUDA_COMPILER)
  # Searches for nvcc in this order: CUDACXX, PATH, the toolkit's environment variables, its usual folder, the folder
  # of tools/cuda_toolkit.sh.
  find_program(SLUICE_NVCC nvcc
    HINTS "$ENV{CUDACXX}" ENV PATH "$ENV{CUDA_HOME}/bin" "$ENV{CUDA_PATH}/bin"
    PATHS /usr/local/cuda/bin ${CMAKE_SOURCE_DIR}/.venv-cuda/toolkit/bin NO_DEFAULT_PATH)
  if(EXISTS "$ENV{CUDACXX}")
    set(SLUICE_NVCC "$ENV{CUDACXX}")
  endif()
  if(NOT SLUICE_NVCC)
    message(FATAL_ERROR "SLUICE_CUDA: no nvcc in CUDACXX, PATH, CUDA_HOME, CUDA_PATH or /usr/local/cuda/bin: expected "
            "CUDA ${SLUICE_CUDA_NEEDED} or later. Install a toolkit, or run tools/cuda_toolkit.sh (make build-cuda does).")
  endif()
  set(CMAKE_CUDA_COMPILER ${SLUICE_NVCC})
endif()
execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --version OUTPUT_VARIABLE nvcc_version RESULT_VARIABLE nvcc_failed)
string(REGEX MATCH "release [0-9]+\\.[0-9]+, V([0-9.]+)" nvcc_found "${nvcc_version}")
set(nvcc_found "${CMAKE_MATCH_1}")
if(nvcc_failed OR nvcc_found VERSION_LESS SLUICE_CUDA_NEEDED)
  message(FATAL_ERROR "SLUICE_CUDA: ${CMAKE_CUDA_COMPILER} is of CUDA '${nvcc_found}': expected "
          "${SLUICE_CUDA_NEEDED} or later. Name another nvcc with CUDACXX and remove ${CMAKE_BINARY_DIR}.")
endif()

if(CMAKE_CROSSCOMPILING)
  execute_process(COMMAND ${CMAKE_SOURCE_DIR}/tools/cuda_arm_toolkit.sh ${CMAKE_CUDA_COMPILER} ${CMAKE_SOURCE_DIR}/build/arm-cuda
                  RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "SLUICE_CUDA: no CUDA toolkit for aarch64 in build/arm-cuda, and it cannot be made (see above)")
  endif()
  set(CMAKE_CUDA_COMPILER ${CMAKE_SOURCE_DIR}/build/arm-cuda/bin/nvcc)
endif()

# Code for 10.0 runs on 10.3, and for 12.0 on 12.1. Kernels that need features of a single chip are compiled for 9.0a
# alone (SLUICE_HOPPER_FLAGS).
set(default_architectures "80;89;90;100;110;120")
if(CMAKE_CROSSCOMPILING)
  # GPUs in machines with Arm CPUs: GH200, GB200 and GB300, Thor, DGX Spark (GB10).
  set(default_architectures "90;100;110;120")
endif()
if(nvcc_found VERSION_LESS 13.0)
  list(REMOVE_ITEM default_architectures 110)
endif()
set(SLUICE_CUDA_ARCHITECTURES "${default_architectures}" CACHE STRING
    "GPU architectures to compile kernels for, as nvcc names them; one of them halves the time of a build")

# CMake 3.25 does not know all of these architectures, so the flags are given explicitly below.
set(CMAKE_CUDA_ARCHITECTURES OFF)
if(NOT CMAKE_CUDA_COMPILER_LAUNCHER AND CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER} CACHE STRING "")
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know nvcc's C++20 flag either
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_EXTENSIONS OFF)

find_library(SLUICE_CUDART_STATIC cudart_static REQUIRED NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH
             PATHS ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES} ${CMAKE_CUDA_HOST_IMPLICIT_LINK_DIRECTORIES})
add_library(sluice_cuda_runtime INTERFACE)
target_include_directories(sluice_cuda_runtime SYSTEM INTERFACE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
target_link_libraries(sluice_cuda_runtime INTERFACE ${SLUICE_CUDART_STATIC} Threads::Threads ${CMAKE_DL_LIBS} rt)
string(REPLACE ";" " " architectures "${SLUICE_CUDA_ARCHITECTURES}")
target_compile_definitions(sluice_cuda_runtime INTERFACE SLUICE_CUDA SLUICE_CUDA_ARCHITECTURES="${architectures}")

# Machine code for each architecture and no PTX, so that the driver never compiles kernels.
set(SLUICE_CUDA_FLAGS -Xcompiler=-Wall,-Wextra -Werror=all-warnings)
foreach(architecture ${SLUICE_CUDA_ARCHITECTURES})
  list(APPEND SLUICE_CUDA_FLAGS -gencode=arch=compute_${architecture},code=sm_${architecture})
endforeach()
# Without 9.0 among the architectures, these kernels are compiled without contents, and never launched.
set(SLUICE_HOPPER_FLAGS ${SLUICE_CUDA_FLAGS})
if("${SLUICE_CUDA_ARCHITECTURES}" MATCHES "(^|;)90a?(;|$)")
  set(SLUICE_HOPPER_FLAGS -Xcompiler=-Wall,-Wextra -Werror=all-warnings -gencode=arch=compute_90a,code=sm_90a)
endif()
message(STATUS "CUDA ${nvcc_found} for ${architectures}: ${CMAKE_CUDA_COMPILER}")
