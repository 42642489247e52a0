// rms_norm, residual add, division, silu_mul and rope.
#include <cmath>

#include "kernels/reference/reference.h"
#include "tensor/bfloat16.h"

namespace sluice::kernels::reference {
namespace {

void Store(void* y, int64_t index, float value, bool bf16) {
  if (bf16)
    static_cast<BFloat16*>(y)[index] = ToBFloat16(value);
  else
    static_cast<float*>(y)[index] = value;
}

void Rotate(float& a, float& b, float cosine, float sine) {
  const float rotated = a * cosine - b * sine;
  b = a * sine + b * cosine;
  a = rotated;
}

}  // namespace

void RmsNormRow(const float* x, const float* weight, float eps, int64_t cols, void* y,
                bool y_bf16) {
  double squares = 0;
  for (int64_t i = 0; i < cols; ++i) squares += static_cast<double>(x[i]) * x[i];
  const float mean = static_cast<float>(squares / static_cast<double>(cols));
  const float factor = 1.0f / std::sqrt(mean + eps);
  for (int64_t i = 0; i < cols; ++i) Store(y, i, weight[i] * (x[i] * factor), y_bf16);
}

void Add(float* sum, const float* delta, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += delta[i];
}

void Divide(const float* x, float divisor, int64_t count, void* y, bool y_bf16) {
  for (int64_t i = 0; i < count; ++i) Store(y, i, x[i] / divisor, y_bf16);
}

void SiluMul(const float* gate, const float* up, int64_t count, void* y, bool y_bf16) {
  for (int64_t i = 0; i < count; ++i)
    Store(y, i, gate[i] / (1.0f + std::exp(-gate[i])) * up[i], y_bf16);
}

void RopeHalf(float* x, int num_heads, int head_dim, const float* cos_sin) {
  const int half = head_dim / 2;
  for (int head = 0; head < num_heads; ++head, x += head_dim) {
    for (int i = 0; i < half; ++i) Rotate(x[i], x[half + i], cos_sin[i], cos_sin[half + i]);
  }
}

void RopeInterleaved(float* x, int num_heads, int head_dim, const float* cos_sin) {
  const int half = head_dim / 2;
  for (int head = 0; head < num_heads; ++head, x += head_dim) {
    for (int i = 0; i < half; ++i) Rotate(x[2 * i], x[2 * i + 1], cos_sin[i], cos_sin[half + i]);
  }
}

}  // namespace sluice::kernels::reference
