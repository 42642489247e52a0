// Packs weights into panels; PackedMatrix and panel_layout.h describe the layout.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <string>

#include <fmt/format.h>

#include "base/check.h"
#include "kernels/kernel_table.h"
#include "kernels/linear.h"
#include "kernels/packing_narrow.h"
#include "kernels/panel_layout.h"
#include "tensor/finite.h"

namespace sluice::kernels {
namespace {

template <typename T>
T Load(const std::byte* address) {
  T value;
  std::memcpy(&value, address, sizeof(T));
  return value;
}

// Converts an element of the source to bits of the matrix's type.
template <typename Target, ElementType kSource>
Target Convert(const std::byte* address) {
  if constexpr (kSource == ElementType::kBF16) {
    const auto value = Load<BFloat16>(address);
    if constexpr (sizeof(Target) == 2)
      return value;
    else
      return ToFloat(value);
  } else {
    float value;
    if constexpr (kSource == ElementType::kF16)
      value = HalfToFloat(Load<uint16_t>(address));
    else
      value = Load<float>(address);
    if constexpr (sizeof(Target) == 2)
      return ToBFloat16(value);
    else
      return value;
  }
}

// Packs rows [begin, end) of the matrix from the source's rows, starting at `source_row`.
template <typename Target, ElementType kSource>
void PackRange(PackedMatrix& matrix, int64_t begin, int64_t end, const StoredMatrix& source,
               int64_t source_row) {
  constexpr int64_t kSourceBytes = kSource == ElementType::kF32 ? 4 : 2;
  constexpr int64_t kGroup = sizeof(Target) == 2 ? 2 : 1;  // interleaved inputs
  constexpr int64_t kBlock =
      512;  // so many columns of 16 rows stay in L1 while a panel's lines are filled
  const int64_t cols = matrix.cols;
  const int64_t panel_bytes = LayoutOf(matrix.format, cols).panel_bytes;
  // A transposed source stores all rows of an input consecutively. So each pass goes over all
  // panels for a few inputs.
  const int64_t pass_cols = source.transposed ? 16 : cols;
  const int64_t row_bytes = (source.transposed ? 1 : cols) * kSourceBytes;
  const int64_t col_bytes = (source.transposed ? source.rows : 1) * kSourceBytes;
  for (int64_t pass = 0; pass < cols; pass += pass_cols) {
    const int64_t pass_end = std::min(cols, pass + pass_cols);
    for (int64_t panel = begin / kPanelRows; panel * kPanelRows < end; ++panel) {
      const int64_t row_begin = std::max(begin, panel * kPanelRows);
      const int64_t row_end = std::min(end, (panel + 1) * kPanelRows);
      auto* panel_data = reinterpret_cast<Target*>(matrix.data.data() + panel * panel_bytes);
      for (int64_t block = pass; block < pass_end; block += kBlock) {
        const int64_t block_end = std::min(pass_end, block + kBlock);
        for (int64_t row = row_begin; row < row_end; ++row) {
          const std::byte* from = source.data + (source_row + row - begin) * row_bytes;
          Target* to = panel_data + row % kPanelRows * kGroup;
          for (int64_t k = block; k < block_end; ++k) {
            to[k / kGroup * kGroup * kPanelRows + k % kGroup] =
                Convert<Target, kSource>(from + k * col_bytes);
          }
        }
      }
    }
  }
}

template <typename Target>
void PackPlainRows(PackedMatrix& matrix, int64_t begin, int64_t end, const StoredMatrix& source,
                   int64_t source_row) {
  switch (source.format.type) {
    case ElementType::kF32:
      return PackRange<Target, ElementType::kF32>(matrix, begin, end, source, source_row);
    case ElementType::kBF16:
      return PackRange<Target, ElementType::kBF16>(matrix, begin, end, source, source_row);
    case ElementType::kF16:
      return PackRange<Target, ElementType::kF16>(matrix, begin, end, source, source_row);
    default: CHECK(false, "cannot pack {}", ElementTypeName(source.format.type));
  }
}

// Returns, for example, "F8_E4M3 with a scale per block of 128 x 128 (F32)".
std::string Describe(const DataFormat& format) {
  const std::string_view type = ElementTypeName(format.type);
  const std::string_view scale = ElementTypeName(format.scale_type);
  switch (format.scale_layout) {
    case DataFormat::ScaleLayout::kNone: return fmt::format("{} without scales", type);
    case DataFormat::ScaleLayout::kPerTensor:
      return fmt::format("{} with one scale ({})", type, scale);
    case DataFormat::ScaleLayout::kPerRow:
      return fmt::format("{} with a scale per row ({})", type, scale);
    case DataFormat::ScaleLayout::kPerGroup:
      return fmt::format("{} with a scale per {} inputs ({})", type, format.group_size, scale);
    case DataFormat::ScaleLayout::kPerBlock:
      return fmt::format("{} with a scale per block of {} x {} ({})", type, format.block_rows,
                         format.group_size, scale);
  }
  return std::string(type);
}

}  // namespace

int64_t PackedBytes(const DataFormat& format, int64_t rows, int64_t cols) {
  const PanelLayout layout = LayoutOf(format, cols);
  const int64_t row_scale_bytes =
      layout.is_narrow() ? kPanelRows * static_cast<int64_t>(sizeof(float)) : 0;
  return NumPanels(rows) * (layout.panel_bytes + layout.panel_scale_bytes +
                            layout.panel_zero_bytes + row_scale_bytes) +
         (format.has_input_order ? cols * static_cast<int64_t>(sizeof(int32_t)) : 0);
}

Result<PackedMatrix> AllocatePacked(const DataFormat& format, int64_t rows, int64_t cols,
                                    const char* what) {
  CHECK_GE(rows, 0);
  CHECK_GE(cols, 0);
  if (!PanelKindOf(format)) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("{}: weights of {} have no kernels; those have: BF16 and F32 without "
                    "scales; F8_E4M3 with one scale, a scale per row, or per block whose "
                    "inputs are a multiple of 32; I8 with one scale; F4 with F8_E4M3 scales "
                    "per 16 inputs (NVFP4) or F8_E8M0 scales per 32 inputs (MXFP4); I8 and "
                    "INT4 with scales per row, or per group of a multiple of 32 inputs",
                    what, Describe(format)),
        what);
  }
  if (PanelKindOf(format) == PanelKind::kI8 && cols > kMaxInt8Cols) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("{}: {} inputs, but sums of I8 products fit their 32 bits only up to {}", what,
                    cols, kMaxInt8Cols),
        what);
  }
  if (format.type == ElementType::kInt4 && cols % 8 != 0) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}: expected a multiple of 8 inputs of INT4, found {}", what, cols),
                what);
  }
  if (format.scale_layout == DataFormat::ScaleLayout::kPerGroup && cols % format.group_size != 0) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}: expected inputs in whole groups of {}, found {} inputs", what,
                            format.group_size, cols),
                what);
  }
  const PanelLayout layout = LayoutOf(format, cols);
  const auto panels = static_cast<size_t>(NumPanels(rows));
  PackedMatrix matrix;
  matrix.format = format;
  matrix.rows = rows;
  matrix.cols = cols;
  ASSIGN_OR_RETURN(matrix.data,
                   Buffer::Allocate(panels * static_cast<size_t>(layout.panel_bytes), what));
  ASSIGN_OR_RETURN(matrix.group_scales,
                   Buffer::Allocate(panels * static_cast<size_t>(layout.panel_scale_bytes), what));
  if (layout.is_narrow()) {
    ASSIGN_OR_RETURN(matrix.row_scales,
                     Buffer::Allocate(panels * kPanelRows * sizeof(float), what));
  }
  ASSIGN_OR_RETURN(matrix.zero_points,
                   Buffer::Allocate(panels * static_cast<size_t>(layout.panel_zero_bytes), what));
  if (format.has_input_order) {
    ASSIGN_OR_RETURN(matrix.input_order,
                     Buffer::Allocate(static_cast<size_t>(cols) * sizeof(int32_t), what));
    std::iota(matrix.input_order.As<int32_t>().begin(), matrix.input_order.As<int32_t>().end(), 0);
  }
  return matrix;
}

bool PackRows(ThreadPool& pool, PackedMatrix& matrix, int64_t first_row, const StoredMatrix& source,
              int64_t source_row, int64_t num_rows) {
  CHECK_GE(first_row, 0);
  CHECK_GE(num_rows, 0);
  CHECK_LE(first_row + num_rows, matrix.rows);
  CHECK_LE(source_row + num_rows, source.rows);
  CHECK_EQ(source.cols, matrix.cols);
  const PanelKind kind = LayoutOf(matrix.format, matrix.cols).kind;
  if (source.input_order != nullptr) {
    CHECK(matrix.format.has_input_order, "reordered inputs in a matrix without an input order");
    std::copy_n(source.input_order, matrix.cols, matrix.input_order.As<int32_t>().begin());
  }
  const int64_t first_panel = first_row / kPanelRows;
  std::atomic<bool> finite{true};
  const auto pack = [&](int64_t begin, int64_t end) {
    const int64_t from_row = source_row + begin - first_row;
    // Checks the rows before packing, so that packing finds them in the cache.
    if (!RowsAreFinite(source, from_row, from_row + end - begin)) finite = false;
    switch (kind) {
      case PanelKind::kBF16:
        if (source.format.type == ElementType::kBF16 && !source.transposed)
          return CopyBf16Rows(matrix, begin, end, source, from_row);
        return PackPlainRows<BFloat16>(matrix, begin, end, source, from_row);
      case PanelKind::kF32: return PackPlainRows<float>(matrix, begin, end, source, from_row);
      default: return PackNarrowRows(matrix, begin, end, source, from_row);
    }
  };
  // Divides the work by whole panels, so that two threads never write to the same cache line.
  pool.ParallelFor(
      NumPanels(first_row + num_rows) - first_panel, 1,
      [&](int64_t panel_begin, int64_t panel_end) {
        const int64_t begin = std::max(first_row, (first_panel + panel_begin) * kPanelRows);
        const int64_t end = std::min(first_row + num_rows, (first_panel + panel_end) * kPanelRows);
        // A transposed source stores all rows of an input consecutively.
        if (source.transposed) return pack(begin, end);
        for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
          const int64_t row = (first_panel + panel) * kPanelRows;
          pack(std::max(begin, row), std::min(end, row + kPanelRows));
        }
      });
  return finite;
}

void DecodeRow(const PackedMatrix& matrix, int64_t row, float* out) {
  const PanelLayout layout = LayoutOf(matrix.format, matrix.cols);
  const int64_t lane = row % kPanelRows;
  const int64_t cols = matrix.cols;
  const std::byte* panel = matrix.data.data() + row / kPanelRows * layout.panel_bytes;
  if (layout.kind == PanelKind::kBF16) {
    const auto* data = reinterpret_cast<const BFloat16*>(panel) + lane * 2;
    for (int64_t k = 0; k < cols; ++k) out[k] = ToFloat(data[k / 2 * 2 * kPanelRows + k % 2]);
  } else if (layout.kind == PanelKind::kF32) {
    const auto* data = reinterpret_cast<const float*>(panel) + lane;
    for (int64_t k = 0; k < cols; ++k) out[k] = data[k * kPanelRows];
  } else {
    const std::byte* scales =
        matrix.group_scales.data() + row / kPanelRows * layout.panel_scale_bytes;
    const float row_scale = matrix.row_scales.As<float>()[static_cast<size_t>(row)];
    const int64_t per_word = layout.inputs_per_word;
    const std::byte* zeros =
        matrix.zero_points.data() + row / kPanelRows * layout.panel_zero_bytes + lane;
    const bool is_int4 = matrix.format.type == ElementType::kInt4;
    const auto zero = [&](int64_t k) -> float {
      if (layout.panel_zero_bytes == 0) return is_int4 ? kInt4Zero : 0;
      return std::to_integer<uint8_t>(zeros[k / kPanelStepInputs * kPanelRows]);
    };
    const int32_t* order =
        matrix.format.has_input_order ? matrix.input_order.As<int32_t>().data() : nullptr;
    for (int64_t k = 0; k < cols; ++k) {
      const auto word = Load<uint32_t>(panel + (k / per_word * kPanelRows + lane) * 4);
      const float scale =
          layout.group_size == 0 ? 1 : GroupScale(layout.kind, scales, k / layout.group_size, lane);
      const int64_t input = order == nullptr ? k : order[k];
      const float value = CodeValue(layout.kind, word, k % per_word) - zero(k);
      out[input] = value * scale * row_scale;
    }
  }
}

}  // namespace sluice::kernels
