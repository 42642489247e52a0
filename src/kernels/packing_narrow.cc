#include "kernels/packing_narrow.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/check.h"
#include "tensor/bfloat16.h"
#include "tensor/float4.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kPanelRows = PackedMatrix::kPanelRows;
constexpr int64_t kBlockWords = 128;  // of 16 rows: their lines stay in L1 while they are filled

template <typename T>
T Load(const std::byte* address) {
  T value;
  std::memcpy(&value, address, sizeof(T));
  return value;
}

// A scale in a type of floating point numbers.
float LoadScale(const std::byte* scales, ElementType type, int64_t index) {
  switch (type) {
    case ElementType::kF32: return Load<float>(scales + 4 * index);
    case ElementType::kBF16: return ToFloat(Load<BFloat16>(scales + 2 * index));
    case ElementType::kF16: return HalfToFloat(Load<uint16_t>(scales + 2 * index));
    case ElementType::kF8E8M0:
    case ElementType::kU8: return PowerOfTwoToFloat(std::to_integer<uint8_t>(scales[index]));
    default: CHECK(false, "not the type of a scale: {}", ElementTypeName(type));
  }
}

// The orders of the inputs in a word; see panel_layout.h.
uint32_t ToPanelOrder8(uint32_t codes) {
  return (codes & 0xFF0000FFu) | (codes & 0x0000FF00u) << 8 | (codes & 0x00FF0000u) >> 8;
}
uint32_t Narrow(uint32_t half_bytes) {  // the low halves of four bytes, side by side
  half_bytes = (half_bytes | half_bytes >> 4) & 0x00FF00FFu;
  return (half_bytes | half_bytes >> 8) & 0xFFFFu;
}
uint32_t ToPanelOrder4(uint32_t codes) {
  return Narrow(codes & 0x0F0F0F0Fu) | Narrow(codes >> 4 & 0x0F0F0F0Fu) << 16;
}

// The codes of a row as they are stored: 4 bytes from byte `index` on, zeros past the end.
struct StoredCodes {
  const std::byte* begin;
  int64_t stride;  // bytes between neighbours: 1, or a whole row of a transposed matrix
  int64_t count;   // bytes of the row

  uint32_t Word(int64_t index) const {
    if (stride == 1 && index + 4 <= count) return Load<uint32_t>(begin + index);
    uint32_t word = 0;
    for (int64_t i = 0; i < 4 && index + i < count; ++i)
      word |= std::to_integer<uint32_t>(begin[(index + i) * stride]) << (8 * i);
    return word;
  }
};

StoredCodes CodesOf(const StoredMatrix& source, int64_t row) {
  const int64_t bytes = source.format.type == ElementType::kF4E2M1 ? source.cols / 2 : source.cols;
  if (source.transposed) return {source.data + row, source.rows, bytes};
  return {source.data + row * bytes, 1, bytes};
}

template <typename ToPanelOrder>
void PackCodes(std::byte* panel, int64_t words, int64_t row_begin, int64_t row_end,
               const StoredMatrix& source, int64_t source_row, ToPanelOrder&& to_panel_order) {
  for (int64_t block = 0; block < words; block += kBlockWords) {
    const int64_t block_end = std::min(words, block + kBlockWords);
    for (int64_t row = row_begin; row < row_end; ++row) {
      const StoredCodes codes = CodesOf(source, source_row + row - row_begin);
      std::byte* to = panel + row % kPanelRows * 4;
      for (int64_t i = block; i < block_end; ++i) {
        const uint32_t word = to_panel_order(codes.Word(i * 4));
        std::memcpy(to + i * kPanelRows * 4, &word, 4);
      }
    }
  }
}

// The scales of groups and blocks of one row.
void PackGroupScales(const PanelLayout& layout, std::byte* panel_scales, int64_t lane,
                     const StoredMatrix& source, int64_t source_row) {
  const int64_t groups = (source.cols + layout.group_size - 1) / layout.group_size;
  const bool blocks = layout.kind == PanelKind::kBlockF8;
  const int64_t scale_row = blocks ? source_row / source.format.block_rows : source_row;
  const int64_t scale_rows =
      blocks ? (source.rows + source.format.block_rows - 1) / source.format.block_rows
             : source.rows;
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t from =
        source.transposed ? group * scale_rows + scale_row : scale_row * groups + group;
    std::byte* to = panel_scales + (group * kPanelRows + lane) * (blocks ? 4 : 1);
    if (blocks) {
      const float scale = LoadScale(source.scales, source.format.scale_type, from);
      std::memcpy(to, &scale, 4);
    } else {
      *to = source.scales[from];
    }
  }
}

float RowScale(const StoredMatrix& source, int64_t source_row) {
  const ElementType type = source.format.scale_type;
  switch (source.format.scale_layout) {
    case DataFormat::ScaleLayout::kPerTensor:
      return LoadScale(source.scales, type, 0) * source.second_scale;
    case DataFormat::ScaleLayout::kPerRow:
      return LoadScale(source.scales, type, source_row) * source.second_scale;
    default: return source.second_scale;
  }
}

}  // namespace

void PackNarrowRows(PackedMatrix& matrix, int64_t begin, int64_t end, const StoredMatrix& source,
                    int64_t source_row) {
  const PanelLayout layout = LayoutOf(matrix.format, matrix.cols);
  CHECK(PanelKindOf(source.format) == layout.kind &&
            source.format.group_size == matrix.format.group_size,
        "a source of {} in a matrix of {}", ElementTypeName(source.format.type),
        ElementTypeName(matrix.format.type));
  CHECK(source.scales != nullptr, "a source of {} without scales",
        ElementTypeName(source.format.type));
  CHECK(source.format.type != ElementType::kF4E2M1 || source.cols % 2 == 0, "{} inputs of 4 bits",
        source.cols);
  const int64_t words = layout.panel_bytes / (kPanelRows * 4);
  for (int64_t panel = begin / kPanelRows; panel * kPanelRows < end; ++panel) {
    const int64_t row_begin = std::max(begin, panel * kPanelRows);
    const int64_t row_end = std::min(end, (panel + 1) * kPanelRows);
    const int64_t from_row = source_row + row_begin - begin;
    std::byte* codes = matrix.data.data() + panel * layout.panel_bytes;
    switch (layout.kind) {
      case PanelKind::kI8:
        PackCodes(codes, words, row_begin, row_end, source, from_row, std::identity{});
        break;
      case PanelKind::kF8:
      case PanelKind::kBlockF8:
        PackCodes(codes, words, row_begin, row_end, source, from_row, ToPanelOrder8);
        break;
      default: PackCodes(codes, words, row_begin, row_end, source, from_row, ToPanelOrder4);
    }
    for (int64_t row = row_begin; row < row_end; ++row) {
      if (layout.group_size != 0) {
        PackGroupScales(layout, matrix.group_scales.data() + panel * layout.panel_scale_bytes,
                        row % kPanelRows, source, from_row + row - row_begin);
      }
      matrix.row_scales.As<float>()[row] = RowScale(source, from_row + row - row_begin);
    }
  }
}

}  // namespace sluice::kernels
