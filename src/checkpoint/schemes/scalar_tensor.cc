#include "checkpoint/schemes/scalar_tensor.h"

#include <cmath>

#include <fmt/format.h>

#include "base/log.h"
#include "tensor/stored_number.h"

namespace sluice {

Result<float> ReadScaleScalar(const StoredTensor& tensor, int64_t count, int64_t index) {
  const TensorInfo& info = *tensor.info;
  const auto misfit = [&](std::string_view expected, std::string_view found) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("tensor '{}' in {} has {}, expected {}", info.name,
                            tensor.file->path().filename().string(), found, expected),
                info.name);
  };
  if (info.type != ElementType::kF32 && info.type != ElementType::kBF16 &&
      info.type != ElementType::kF16) {
    return misfit("F32, BF16 or F16 (a scale)", fmt::format("type {}", ElementTypeName(info.type)));
  }
  const int64_t size = info.num_elements();
  if (size != 1 && (count == 0 || size != count)) {
    return misfit(
        count == 0 ? "one number (a scale)" : fmt::format("one number or {} (a scale)", count),
        fmt::format("shape {}", ShapeText(info.shape)));
  }
  const float value = StoredNumber(tensor.bytes().data(), info.type, size == 1 ? 0 : index);
  if (!std::isfinite(value) || value <= 0)
    return misfit("a scale above 0", fmt::format("the value {}", value));
  constexpr float kLow = 1e-12f, kHigh = 1e6f;
  if (value < kLow || value > kHigh)
    LOG_WARNING("checkpoint", "scale '{}' is {}, which is outside the plausible range", info.name,
                value);
  return value;
}

}  // namespace sluice
