// Marks functions shared by host and device code. Also compiled by nvcc in every kernel, so without
// includes.
#pragma once

#ifdef __CUDACC__
#define SLUICE_ON_DEVICE_TOO __host__ __device__
#else
#define SLUICE_ON_DEVICE_TOO
#endif
