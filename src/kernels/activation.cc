#include "kernels/activation.h"

#include <algorithm>
#include <cmath>

#include "kernels/float_result.h"
#include "kernels/row_parts.h"
#include "kernels/vector_kernel.h"

namespace sluice::kernels {

namespace reference {
namespace {

float ActivationOf(const ActivationRule& rule, float z) {
  switch (rule.kind) {
    case ActivationKind::kSilu: return z / (1.0f + std::exp(-rule.gain * z));
    case ActivationKind::kGeluTanh:
      return z / (1.0f + std::exp(z * (-1.5957691216f - 0.0713548163f * (z * z))));
    case ActivationKind::kQuickGelu: return z / (1.0f + std::exp(-1.702f * z));
    case ActivationKind::kRelu: return z < 0 ? 0.0f : z;
    case ActivationKind::kRelu2: return z < 0 ? 0.0f : z * z;
    case ActivationKind::kXielu: break;
  }
  const float linear = rule.beta * z;
  if (z > 0) return rule.alpha_p * (z * z) + linear;
  return rule.alpha_n * (std::exp(std::min(z, rule.eps)) - 1.0f - z) + linear;
}

}  // namespace

void ActivationRow(const ActivationRule& rule, const float* x, const float* gated, int64_t count,
                   void* y, bool y_bf16) {
  for (int64_t i = 0; i < count; ++i) {
    const bool limits_input = rule.limit > 0 && rule.limits_input;
    float value = ActivationOf(rule, limits_input ? std::min(x[i], rule.limit) : x[i]);
    float factor = gated == nullptr ? 1.0f : gated[i];
    if (rule.limit > 0) {
      if (!limits_input) value = std::min(value, rule.limit);
      factor = std::clamp(factor, -rule.limit, rule.limit);
    }
    if (rule.factor_offset != 0) factor += rule.factor_offset;
    StoreResult(y, i, gated == nullptr ? value : value * factor, y_bf16);
  }
}

}  // namespace reference

SLUICE_VECTOR_KERNEL(ActivationRow);

void Activate(ThreadPool& pool, const ActivationRule& rule, const float* x, int64_t rows,
              int64_t width, bool gated, void* y, ElementType y_type) {
  const bool bf16 = IsBf16Result(y_type);
  const int64_t stride = gated ? 2 * width : width;
  constexpr int64_t kGrain = 1024;
  ForEachRowPart(pool, rows, width, kGrain, [&](int64_t row, int64_t begin, int64_t end) {
    const float* from = x + row * stride + begin;
    kActivationRow(rule, from, gated ? from + width : nullptr, end - begin,
                   ResultAt(y, row * width + begin, bf16), bf16);
  });
}

}  // namespace sluice::kernels
