// Marks functions shared by host and device code. Compiled by nvcc with every kernel, so it
// includes nothing.
#pragma once

#if defined(__CUDACC__) || defined(__HIP__)
#define SLUICE_ON_DEVICE_TOO __attribute__((host)) __attribute__((device))
#else
#define SLUICE_ON_DEVICE_TOO
#endif
