// gelu: GELU by erf, the activation of encoders.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "tensor/element_type.h"

namespace sluice::kernels {

// Computes y[i] = x[i] / 2 * (1 + erf(x[i] / sqrt(2))), within 2e-7 of max(1, |x[i]|). x: F32, y:
// F32 or BF16 (`y_type`), both contiguous [count]. y may be x. Source of the approximation of erf:
// Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26.
void Gelu(ThreadPool& pool, const float* x, int64_t count, void* y, ElementType y_type);

// Computes y[m, i] = gelu(x[m, i]) * x[m, width + i] with gelu as above. Shapes, types and rounding
// as for SiluMul. Overwrites the gates in x.
void GeluErfMul(ThreadPool& pool, float* x, int64_t rows, int64_t width, void* y,
                ElementType y_type);

}  // namespace sluice::kernels
