#define SLUICE_VPDPBUSD "%{evex%} vpdpbusd"
#define SLUICE_LINEAR_I8 LinearI8Evex
#include "kernels/cpu/avx2_vnni/linear_i8_inl.h"
