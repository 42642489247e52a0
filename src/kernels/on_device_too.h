// Before a function that host code and kernels share. Read by the CUDA compiler too: free of
// includes.
#pragma once

#ifdef __CUDACC__
#define SLUICE_ON_DEVICE_TOO __host__ __device__
#else
#define SLUICE_ON_DEVICE_TOO
#endif
