// Packing of weights into panels; the layout stands at PackedMatrix.
#include <cstring>

#include <fmt/format.h>

#include "base/check.h"
#include "kernels/linear.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kPanelRows = PackedMatrix::kPanelRows;

int64_t Panels(int64_t rows) {
  return (rows + kPanelRows - 1) / kPanelRows;
}

// Elements of a panel. BF16 holds pairs of inputs, so an odd number of them is padded with a zero.
int64_t PanelElements(const DataFormat& format, int64_t cols) {
  return kPanelRows * (format.type == ElementType::kBF16 ? (cols + 1) / 2 * 2 : cols);
}

bool IsSupported(const DataFormat& format) {
  return (format.type == ElementType::kBF16 || format.type == ElementType::kF32) &&
         format.scale_layout == DataFormat::ScaleLayout::kNone;
}

template <typename T>
T Load(const std::byte* address) {
  T value;
  std::memcpy(&value, address, sizeof(T));
  return value;
}

// The source's element as bits of the matrix's type.
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

template <typename Target, ElementType kSource>
void PackRange(PackedMatrix& matrix, int64_t first_row, int64_t begin, int64_t end,
               const std::byte* source) {
  constexpr int64_t kSourceBytes = kSource == ElementType::kF32 ? 4 : 2;
  constexpr int64_t kGroup = sizeof(Target) == 2 ? 2 : 1;  // inputs side by side
  constexpr int64_t kBlock =
      512;  // columns of 16 rows that stay in L1 while a panel's lines are filled
  const int64_t cols = matrix.cols;
  auto* target = reinterpret_cast<Target*>(matrix.data.data());
  const int64_t panel_elements = PanelElements(matrix.format, cols);
  for (int64_t panel = begin / kPanelRows; panel * kPanelRows < end; ++panel) {
    const int64_t row_begin = std::max(begin, panel * kPanelRows);
    const int64_t row_end = std::min(end, (panel + 1) * kPanelRows);
    Target* panel_data = target + panel * panel_elements;
    for (int64_t block = 0; block < cols; block += kBlock) {
      const int64_t block_end = std::min(cols, block + kBlock);
      for (int64_t row = row_begin; row < row_end; ++row) {
        const std::byte* from = source + (row - first_row) * cols * kSourceBytes;
        Target* to = panel_data + (row % kPanelRows) * kGroup;
        for (int64_t k = block; k < block_end; ++k) {
          to[k / kGroup * kGroup * kPanelRows + k % kGroup] =
              Convert<Target, kSource>(from + k * kSourceBytes);
        }
      }
    }
  }
}

template <typename Target>
void PackRangeOf(PackedMatrix& matrix, int64_t first_row, int64_t begin, int64_t end,
                 const std::byte* source, ElementType source_type) {
  switch (source_type) {
    case ElementType::kF32:
      return PackRange<Target, ElementType::kF32>(matrix, first_row, begin, end, source);
    case ElementType::kBF16:
      return PackRange<Target, ElementType::kBF16>(matrix, first_row, begin, end, source);
    case ElementType::kF16:
      return PackRange<Target, ElementType::kF16>(matrix, first_row, begin, end, source);
    default: CHECK(false, "cannot pack {}", ElementTypeName(source_type));
  }
}

}  // namespace

int64_t PackedBytes(const DataFormat& format, int64_t rows, int64_t cols) {
  return Panels(rows) * PanelElements(format, cols) * BitsPerElement(format.type) / 8;
}

Result<PackedMatrix> AllocatePacked(const DataFormat& format, int64_t rows, int64_t cols,
                                    const char* what) {
  CHECK_GE(rows, 0);
  CHECK_GE(cols, 0);
  if (!IsSupported(format)) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("{}: expected BF16 or F32 weights without scales, found {}{}", what,
                    ElementTypeName(format.type),
                    format.scale_layout == DataFormat::ScaleLayout::kNone ? "" : " with scales"),
        what);
  }
  PackedMatrix matrix;
  matrix.format = format;
  matrix.rows = rows;
  matrix.cols = cols;
  ASSIGN_OR_RETURN(matrix.data,
                   Buffer::Allocate(static_cast<size_t>(PackedBytes(format, rows, cols)), what));
  return matrix;
}

void PackRows(ThreadPool& pool, PackedMatrix& matrix, int64_t first_row, const StoredMatrix& source,
              int64_t source_row, int64_t num_rows) {
  CHECK_GE(first_row, 0);
  CHECK_GE(num_rows, 0);
  CHECK_LE(first_row + num_rows, matrix.rows);
  CHECK_LE(source_row + num_rows, source.rows);
  CHECK_EQ(source.cols, matrix.cols);
  CHECK(!source.transposed, "cannot pack a transposed matrix");
  CHECK(IsSupported(matrix.format), "cannot pack into {}", ElementTypeName(matrix.format.type));
  const int64_t first_panel = first_row / kPanelRows;
  // Cut by whole panels, which also keeps two threads off the same cache line.
  pool.ParallelFor(
      Panels(first_row + num_rows) - first_panel, 1, [&](int64_t panel_begin, int64_t panel_end) {
        const int64_t begin = std::max(first_row, (first_panel + panel_begin) * kPanelRows);
        const int64_t end = std::min(first_row + num_rows, (first_panel + panel_end) * kPanelRows);
        const ElementType source_type = source.format.type;
        const std::byte* bytes =
            source.data + source_row * source.cols * BitsPerElement(source_type) / 8;
        if (matrix.format.type == ElementType::kBF16) {
          PackRangeOf<BFloat16>(matrix, first_row, begin, end, bytes, source_type);
        } else {
          PackRangeOf<float>(matrix, first_row, begin, end, bytes, source_type);
        }
      });
}

void DecodeRow(const PackedMatrix& matrix, int64_t row, float* out) {
  const int64_t panel = row / kPanelRows;
  const int64_t lane = row % kPanelRows;
  const int64_t cols = matrix.cols;
  if (matrix.format.type == ElementType::kBF16) {
    const int64_t pairs = (cols + 1) / 2;
    const auto* data = reinterpret_cast<const BFloat16*>(matrix.data.data()) +
                       (panel * pairs * kPanelRows + lane) * 2;
    for (int64_t k = 0; k < cols; ++k) out[k] = ToFloat(data[k / 2 * 2 * kPanelRows + k % 2]);
  } else {
    const auto* data =
        reinterpret_cast<const float*>(matrix.data.data()) + panel * cols * kPanelRows + lane;
    for (int64_t k = 0; k < cols; ++k) out[k] = data[k * kPanelRows];
  }
}

}  // namespace sluice::kernels
