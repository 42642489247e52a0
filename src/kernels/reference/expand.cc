#include "kernels/panel_layout.h"
#include "kernels/reference/reference.h"
#include "tensor/bfloat16.h"
#include "tensor/stored_matrix.h"

namespace sluice::kernels::reference {
namespace {

constexpr int64_t kRows = PackedMatrix::kPanelRows;

template <PanelKind kKind>
void Expand(const uint8_t* codes, const uint8_t* scales, int64_t steps, uint8_t* lines) {
  constexpr bool kGroups = kKind == PanelKind::kNvfp4 || kKind == PanelKind::kMxfp4;
  constexpr int64_t kPerWord = kGroups ? 8 : 4;
  constexpr int64_t kGroupSize = kKind == PanelKind::kNvfp4 ? 16 : 32;
  const auto* words = reinterpret_cast<const uint32_t*>(codes);
  auto* values = reinterpret_cast<BFloat16*>(lines);
  for (int64_t k = 0; k < steps * kPanelStepInputs; ++k) {
    for (int64_t lane = 0; lane < kRows; ++lane) {
      float value = CodeValue(kKind, words[k / kPerWord * kRows + lane], k % kPerWord);
      if constexpr (kGroups) {
        value *=
            GroupScale(kKind, reinterpret_cast<const std::byte*>(scales), k / kGroupSize, lane);
      }
      values[(k / 2 * kRows + lane) * 2 + k % 2] = ToBFloat16(value);
    }
  }
}

}  // namespace

void ExpandI8(const uint8_t* codes, const uint8_t* scales, int64_t steps, uint8_t* lines) {
  Expand<PanelKind::kI8>(codes, scales, steps, lines);
}
void ExpandF8(const uint8_t* codes, const uint8_t* scales, int64_t steps, uint8_t* lines) {
  Expand<PanelKind::kF8>(codes, scales, steps, lines);
}
void ExpandNvfp4(const uint8_t* codes, const uint8_t* scales, int64_t steps, uint8_t* lines) {
  Expand<PanelKind::kNvfp4>(codes, scales, steps, lines);
}
void ExpandMxfp4(const uint8_t* codes, const uint8_t* scales, int64_t steps, uint8_t* lines) {
  Expand<PanelKind::kMxfp4>(codes, scales, steps, lines);
}
void ExpandInt4(const uint8_t* codes, const uint8_t* zero_points, int64_t steps, uint8_t* lines) {
  const auto* words = reinterpret_cast<const uint32_t*>(codes);
  auto* values = reinterpret_cast<BFloat16*>(lines);
  for (int64_t k = 0; k < steps * kPanelStepInputs; ++k) {
    for (int64_t lane = 0; lane < kRows; ++lane) {
      const float code = CodeValue(PanelKind::kInt4, words[k / 8 * kRows + lane], k % 8);
      const int zero =
          zero_points == nullptr ? kInt4Zero : zero_points[k / kPanelStepInputs * kRows + lane];
      values[(k / 2 * kRows + lane) * 2 + k % 2] = ToBFloat16(code - static_cast<float>(zero));
    }
  }
}

}  // namespace sluice::kernels::reference
