# The toolchain of the preset `cuda-arm`: the toolchain of `arm`, plus CUDA for Arm hosts
# (tools/cuda_arm_toolkit.sh).
include(${CMAKE_CURRENT_LIST_DIR}/Arm.cmake)
set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
