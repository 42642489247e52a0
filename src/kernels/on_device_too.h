// Marks functions that host and device code share. nvcc compiles this header with every kernel, so
// it includes nothing.
#pragma once

#if defined(__CUDACC__) || defined(__HIP__)
#define SLUICE_ON_DEVICE_TOO __attribute__((host)) __attribute__((device))
#else
#define SLUICE_ON_DEVICE_TOO
#endif
