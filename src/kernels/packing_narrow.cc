#include "kernels/packing_narrow.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/check.h"
#include "kernels/panel_layout.h"
#include "tensor/stored_number.h"

namespace sluice::kernels {
namespace {

// Number of words of 16 rows at a time, so that their lines stay in L1.
constexpr int64_t kBlockWords = 128;
constexpr int64_t kTransposedWords = 4;

template <typename T>
T LoadWord(const std::byte* address) {
  T value;
  std::memcpy(&value, address, sizeof(T));
  return value;
}

// These functions reorder the inputs of a word; see panel_layout.h.
uint32_t ToPanelOrder8(uint32_t codes) {
  return (codes & 0xFF0000FFu) | (codes & 0x0000FF00u) << 8 | (codes & 0x00FF0000u) >> 8;
}
uint32_t Narrow(uint32_t half_bytes) {  // gathers the low nibbles of four bytes
  half_bytes = (half_bytes | half_bytes >> 4) & 0x00FF00FFu;
  return (half_bytes | half_bytes >> 8) & 0xFFFFu;
}
uint32_t ToPanelOrder4(uint32_t codes) {
  return Narrow(codes & 0x0F0F0F0Fu) | Narrow(codes >> 4 & 0x0F0F0F0Fu) << 16;
}

// A row as stored: words of 4 bytes, with zeros after the end.
struct StoredWords {
  const std::byte* begin;
  int64_t stride;  // bytes from one byte to the next: 1, or a whole row of a transposed matrix
  int64_t count;   // bytes per row

  uint32_t At(int64_t index) const {
    const std::byte* from = begin + index * 4 * stride;
    const int64_t left = count - index * 4;
    if (left >= 4 && stride == 1) return LoadWord<uint32_t>(from);
    const auto byte = [&](int64_t i) {
      return i < left ? std::to_integer<uint32_t>(from[i * stride]) : 0;
    };
    return byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24;
  }
};

StoredWords WordsOf(const StoredMatrix& source, int64_t row) {
  const int64_t bytes = source.cols * BitsPerElement(source.format.type) / 8;
  if (source.transposed) return {source.data + row, source.rows, bytes};
  return {source.data + row * bytes, 1, bytes};
}

// The codes of an INT4 row as words of 8 consecutive inputs in the matrix's input order, with zeros
// after the end.
struct Int4Words {
  const StoredMatrix& source;
  int64_t row;

  uint32_t At(int64_t index) const {
    const int64_t first = index * 8;
    if (first >= source.cols) return 0;
    if (source.input_order == nullptr && source.packing == Int4Packing::kInputs) {
      const int64_t words = (source.cols + 7) / 8;
      return LoadWord<uint32_t>(
          source.data + (source.transposed ? index * source.rows + row : row * words + index) * 4);
    }
    uint32_t word = 0;
    for (int64_t i = 0; i < 8 && first + i < source.cols; ++i) {
      const int64_t input =
          source.input_order == nullptr ? first + i : source.input_order[first + i];
      word |= static_cast<uint32_t>(Int4Code(source, row, input)) << (4 * i);
    }
    return word;
  }
};

// The codes of an I8 row in the matrix's input order, with zeros after the end.
struct Int8Words {
  const StoredMatrix& source;
  int64_t row;

  uint32_t At(int64_t index) const {
    uint32_t word = 0;
    for (int64_t i = 0; i < 4 && index * 4 + i < source.cols; ++i) {
      const int64_t place = index * 4 + i;
      const int64_t input = source.input_order == nullptr ? place : source.input_order[place];
      const auto code = static_cast<uint8_t>(OffsetInt8Code(source, row, input));
      word |= uint32_t{code} << (8 * i);
    }
    return word;
  }
};

// Packs the words of rows [begin, end) of the matrix. words_of(source, row) returns the stored
// words of a row.
template <typename WordsOfRow, typename ToPanelOrder>
void PackWords(PackedMatrix& matrix, int64_t begin, int64_t end, const StoredMatrix& source,
               int64_t source_row, WordsOfRow&& words_of, ToPanelOrder&& to_panel_order) {
  const int64_t panel_bytes = LayoutOf(matrix.format, matrix.cols).panel_bytes;
  const int64_t words = panel_bytes / (kPanelRows * 4);
  // A transposed source stores all rows of an input consecutively. So each pass goes over all
  // panels for a few inputs.
  const int64_t pass_words = source.transposed ? kTransposedWords : words;
  for (int64_t pass = 0; pass < words; pass += pass_words) {
    const int64_t pass_end = std::min(words, pass + pass_words);
    for (int64_t panel = begin / kPanelRows; panel * kPanelRows < end; ++panel) {
      std::byte* to = matrix.data.data() + panel * panel_bytes;
      const int64_t row_begin = std::max(begin, panel * kPanelRows);
      const int64_t row_end = std::min(end, (panel + 1) * kPanelRows);
      for (int64_t block = pass; block < pass_end; block += kBlockWords) {
        const int64_t block_end = std::min(pass_end, block + kBlockWords);
        for (int64_t row = row_begin; row < row_end; ++row) {
          const auto from = words_of(source, source_row + row - begin);
          for (int64_t i = block; i < block_end; ++i) {
            const uint32_t word = to_panel_order(from.At(i));
            std::memcpy(to + (i * kPanelRows + row % kPanelRows) * 4, &word, 4);
          }
        }
      }
    }
  }
}

// Packs the group scales of one row.
void PackGroupScales(const PanelLayout& layout, std::byte* panel_scales, int64_t lane,
                     const StoredMatrix& source, int64_t source_row) {
  const int64_t groups = source.cols / layout.group_size;
  const int64_t step = source.transposed ? source.rows : 1;
  const std::byte* from = source.scales + (source.transposed ? source_row : source_row * groups);
  for (int64_t group = 0; group < groups; ++group)
    panel_scales[group * kPanelRows + lane] = from[group * step];
}

// Packs the scales, and for INT4 the zero points, of one row of integers.
void PackIntegerScales(const PackedMatrix& matrix, const PanelLayout& layout,
                       std::byte* panel_scales, std::byte* panel_zeros, int64_t lane,
                       const StoredMatrix& source, int64_t source_row) {
  const int64_t groups = layout.group_size == 0 ? 0 : matrix.cols / layout.group_size;
  for (int64_t group = 0; group < groups; ++group) {
    const float scale = StoredNumber(
        source.scales, source.format.scale_type,
        source.transposed ? group * source.rows + source_row : source_row * groups + group);
    std::memcpy(panel_scales + (group * kPanelRows + lane) * 4, &scale, 4);
  }
  for (int64_t step = 0; step * kPanelRows < layout.panel_zero_bytes; ++step) {
    const int64_t group = groups == 0 ? 0 : step * kPanelStepInputs / layout.group_size;
    panel_zeros[step * kPanelRows + lane] =
        static_cast<std::byte>(Int4ZeroPoint(source, source_row, group));
  }
}

// Packs the block scales of one row.
void PackBlockScales(const PanelLayout& layout, std::byte* panel_scales, int64_t lane,
                     const StoredMatrix& source, int64_t source_row) {
  const int64_t blocks = (source.cols + layout.group_size - 1) / layout.group_size;
  const int64_t block_rows = source.format.block_rows;
  const int64_t step = source.transposed ? (source.rows + block_rows - 1) / block_rows : 1;
  const int64_t first = source_row / block_rows * (source.transposed ? 1 : blocks);
  for (int64_t block = 0; block < blocks; ++block) {
    const float scale = StoredNumber(source.scales, source.format.scale_type, first + block * step);
    std::memcpy(panel_scales + (block * kPanelRows + lane) * 4, &scale, 4);
  }
}

float RowScale(const StoredMatrix& source, int64_t source_row) {
  const ElementType type = source.format.scale_type;
  switch (source.format.scale_layout) {
    case DataFormat::ScaleLayout::kPerTensor:
      return StoredNumber(source.scales, type, 0) * source.second_scale;
    case DataFormat::ScaleLayout::kPerRow:
      return StoredNumber(source.scales, type, source_row) * source.second_scale;
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
  switch (layout.kind) {
    case PanelKind::kI8:
    case PanelKind::kGroupI8:
      if (source.has_offset_codes) {
        PackWords(
            matrix, begin, end, source, source_row,
            [](const StoredMatrix& stored, int64_t row) {
              return Int8Words{stored, row};
            },
            std::identity{});
      } else {
        CHECK(source.input_order == nullptr, "codes without an offset have their inputs in order");
        PackWords(matrix, begin, end, source, source_row, WordsOf, std::identity{});
      }
      break;
    case PanelKind::kF8:
    case PanelKind::kBlockF8:
      PackWords(matrix, begin, end, source, source_row, WordsOf, ToPanelOrder8);
      break;
    case PanelKind::kInt4:
    case PanelKind::kGroupInt4:
      PackWords(
          matrix, begin, end, source, source_row,
          [](const StoredMatrix& stored, int64_t row) {
            return Int4Words{stored, row};
          },
          ToPanelOrder4);
      break;
    default: PackWords(matrix, begin, end, source, source_row, WordsOf, ToPanelOrder4);
  }
  for (int64_t row = begin; row < end; ++row) {
    std::byte* scales = matrix.group_scales.data() + row / kPanelRows * layout.panel_scale_bytes;
    const int64_t from = source_row + row - begin;
    if (source.format.type == ElementType::kInt4 || layout.kind == PanelKind::kGroupI8) {
      PackIntegerScales(matrix, layout, scales,
                        matrix.zero_points.data() + row / kPanelRows * layout.panel_zero_bytes,
                        row % kPanelRows, source, from);
    } else if (layout.kind == PanelKind::kBlockF8)
      PackBlockScales(layout, scales, row % kPanelRows, source, from);
    else if (layout.group_size != 0)
      PackGroupScales(layout, scales, row % kPanelRows, source, from);
    matrix.row_scales.As<float>()[static_cast<size_t>(row)] = RowScale(source, from);
  }
}

void CopyBf16Rows(PackedMatrix& matrix, int64_t begin, int64_t end, const StoredMatrix& source,
                  int64_t source_row) {
  PackWords(matrix, begin, end, source, source_row, WordsOf, std::identity{});
}

}  // namespace sluice::kernels
