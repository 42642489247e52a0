#include "kernels/panel_layout.h"

#include <cstring>

#include "base/check.h"
#include "base/integer.h"
#include "tensor/float4.h"
#include "tensor/float8.h"

namespace sluice::kernels {
namespace {

using ScaleLayout = DataFormat::ScaleLayout;

bool IsFloat(ElementType type) {
  return type == ElementType::kF32 || type == ElementType::kBF16 || type == ElementType::kF16;
}

bool IsPowerOfTwo(ElementType type) {
  return type == ElementType::kF8E8M0 || type == ElementType::kU8;
}

std::optional<PanelKind> GroupedKindOf(const DataFormat& format) {
  if (format.type == ElementType::kInt4 || format.type == ElementType::kI8) {
    if (format.group_size <= 0 || format.group_size % kPanelStepInputs != 0 ||
        !IsFloat(format.scale_type))
      return std::nullopt;
    return format.type == ElementType::kI8 ? PanelKind::kGroupI8 : PanelKind::kGroupInt4;
  }
  if (format.type != ElementType::kF4E2M1) return std::nullopt;
  if (format.group_size == 16 && format.scale_type == ElementType::kF8E4M3)
    return PanelKind::kNvfp4;
  if (format.group_size == 32 && IsPowerOfTwo(format.scale_type)) return PanelKind::kMxfp4;
  return std::nullopt;
}

}  // namespace

std::optional<PanelKind> PanelKindOf(const DataFormat& format) {
  switch (format.scale_layout) {
    case ScaleLayout::kNone:
      if (format.type == ElementType::kBF16) return PanelKind::kBF16;
      if (format.type == ElementType::kF32) return PanelKind::kF32;
      return std::nullopt;
    case ScaleLayout::kPerTensor:
    case ScaleLayout::kPerRow:
      if (!IsFloat(format.scale_type)) return std::nullopt;
      if (format.type == ElementType::kF8E4M3) return PanelKind::kF8;
      if (format.type == ElementType::kI8) return PanelKind::kI8;
      if (format.type == ElementType::kInt4) return PanelKind::kInt4;
      return std::nullopt;
    case ScaleLayout::kPerGroup: return GroupedKindOf(format);
    case ScaleLayout::kPerBlock:
      if (format.type == ElementType::kF8E4M3 && format.block_rows > 0 && format.group_size > 0 &&
          format.group_size % kPanelStepInputs == 0 &&
          (IsFloat(format.scale_type) || IsPowerOfTwo(format.scale_type))) {
        return PanelKind::kBlockF8;
      }
      return std::nullopt;
  }
  return std::nullopt;
}

PanelLayout LayoutOf(const DataFormat& format, int64_t cols) {
  const std::optional<PanelKind> kind = PanelKindOf(format);
  CHECK(kind.has_value(), "no kernels for {}", ElementTypeName(format.type));
  constexpr int64_t kRows = PackedMatrix::kPanelRows;
  PanelLayout layout{.kind = *kind};
  switch (*kind) {
    case PanelKind::kBF16: layout.panel_bytes = RoundUp(cols, 2) * kRows * 2; return layout;
    case PanelKind::kF32: layout.panel_bytes = cols * kRows * 4; return layout;
    case PanelKind::kI8:
      // The integer product reads tiles of 64 inputs.
      layout.inputs_per_word = 4;
      layout.panel_bytes = RoundUp(cols, 2 * kPanelStepInputs) * kRows;
      return layout;
    case PanelKind::kF8:
    case PanelKind::kBlockF8:
    case PanelKind::kGroupI8: layout.inputs_per_word = 4; break;
    case PanelKind::kNvfp4:
    case PanelKind::kMxfp4:
    case PanelKind::kInt4:
    case PanelKind::kGroupInt4: layout.inputs_per_word = 8; break;
  }
  const int64_t padded = RoundUp(cols, kPanelStepInputs);
  layout.panel_bytes = padded / layout.inputs_per_word * kRows * 4;
  if (format.has_zero_points) layout.panel_zero_bytes = padded / kPanelStepInputs * kRows;
  if (*kind == PanelKind::kF8 || *kind == PanelKind::kInt4) return layout;
  layout.group_size = format.group_size;
  layout.groups = CeilDiv(padded, layout.group_size);
  layout.panel_scale_bytes = layout.groups * kRows * (layout.has_blocks() ? 4 : 1);
  return layout;
}

float CodeValue(PanelKind kind, uint32_t word, int64_t index) {
  const auto byte = [&](int64_t i) { return static_cast<uint8_t>(word >> (8 * i)); };
  switch (kind) {
    case PanelKind::kI8:
    case PanelKind::kGroupI8: return static_cast<float>(static_cast<int8_t>(byte(index)));
    case PanelKind::kF8:
    case PanelKind::kBlockF8: return ToFloat(Float8E4M3{byte(index % 2 * 2 + index / 2)});
    case PanelKind::kNvfp4:
    case PanelKind::kMxfp4:
      return Float4ToFloat(static_cast<uint8_t>(word >> (index % 2 * 16 + index / 2 * 4) & 15));
    case PanelKind::kInt4:
    case PanelKind::kGroupInt4:
      return static_cast<float>(word >> (index % 2 * 16 + index / 2 * 4) & 15);
    default: CHECK(false, "no codes");
  }
}

float GroupScale(PanelKind kind, const std::byte* panel_scales, int64_t group, int64_t lane) {
  const int64_t index = group * PackedMatrix::kPanelRows + lane;
  switch (kind) {
    case PanelKind::kNvfp4:
      return ToFloat(Float8E4M3{std::to_integer<uint8_t>(panel_scales[index])});
    case PanelKind::kMxfp4: return PowerOfTwoToFloat(std::to_integer<uint8_t>(panel_scales[index]));
    case PanelKind::kBlockF8:
    case PanelKind::kGroupInt4:
    case PanelKind::kGroupI8: {
      float scale;
      std::memcpy(&scale, panel_scales + index * 4, 4);
      return scale;
    }
    default: return 1;
  }
}

}  // namespace sluice::kernels
