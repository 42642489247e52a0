#include "models/input_rounding.h"

#include <algorithm>

namespace sluice {

InputRounding RoundingOf(const ActivationFormat& format, const ModelOptions& options) {
  using Asked = ModelOptions::ActivationRounding;
  if (format.kind == ActivationFormat::Kind::kNone || options.activation_format == Asked::kBf16)
    return InputRounding::kNone;
  const bool asked = options.activation_format == Asked::kCheckpoint;
  if (format.kind == ActivationFormat::Kind::kInt8PerToken) {
    return asked || options.compute_type == ElementType::kBF16 ? InputRounding::kInt8
                                                               : InputRounding::kNone;
  }
  return asked ? InputRounding::kF32 : InputRounding::kNone;
}

int64_t MostExpertPairs(int64_t top_k, int64_t max_rows) {
  // Enough rows that most experts get some rows in each pass over their weights, even if there are
  // many experts.
  constexpr int64_t kMoePairs = 4096;
  return std::max(top_k, std::min(max_rows * top_k, kMoePairs));
}

}  // namespace sluice
