#define SLUICE_VPDPBUSD "%{vex%} vpdpbusd"
#define SLUICE_LINEAR_I8 LinearI8
#include "kernels/cpu/avx2_vnni/linear_i8_inl.h"
