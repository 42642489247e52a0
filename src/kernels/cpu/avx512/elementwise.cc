#include "kernels/cpu/avx512/kernels.h"
#include "kernels/cpu/avx512/simd.h"

#include "kernels/cpu/elementwise_inl.h"

namespace sluice::kernels::avx512 {

void RmsNormRow(const float* x, const float* weight, float eps, int64_t cols, void* y,
                bool y_bf16) {
  RmsNormRowImpl(x, weight, eps, cols, y, y_bf16);
}

void Add(float* sum, const float* delta, int64_t count) {
  AddImpl(sum, delta, count);
}

void Divide(const float* x, float divisor, int64_t count, void* y, bool y_bf16) {
  DivideImpl(x, divisor, count, y, y_bf16);
}

void SiluMul(const float* gate, const float* up, int64_t count, void* y, bool y_bf16) {
  SiluMulImpl(gate, up, count, y, y_bf16);
}

void RopeHalf(float* x, int num_heads, int head_dim, const float* cos_sin) {
  RopeHalfImpl(x, num_heads, head_dim, cos_sin);
}

void RopeInterleaved(float* x, int num_heads, int head_dim, const float* cos_sin) {
  RopeInterleavedImpl(x, num_heads, head_dim, cos_sin);
}

}  // namespace sluice::kernels::avx512
