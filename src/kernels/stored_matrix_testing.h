// Random stored matrices of every format for tests, with their values computed from the published
// formulas, independent of the program's own decoders.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/kernel_testing.h"
#include "tensor/stored_matrix.h"

namespace sluice::kernels {

inline double E4M3Formula(int code) {
  const double sign = code & 0x80 ? -1 : 1;
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  if ((code & 0x7F) == 0x7F) return std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return sign * mantissa * 0x1p-9;
  return sign * (1 + mantissa / 8.0) * std::exp2(exponent - 7);
}

inline double E2M1Formula(int code) {
  const int exponent = code >> 1 & 3, mantissa = code & 1;
  const double magnitude =
      exponent == 0 ? mantissa * 0.5 : (1 + mantissa / 2.0) * std::exp2(exponent - 1);
  return code & 8 ? -magnitude : magnitude;
}

inline double E8M0Formula(int byte) {
  return byte == 255 ? std::numeric_limits<double>::quiet_NaN() : std::exp2(byte - 127);
}

// A matrix as a checkpoint stores it, and its values.
class StoredSample {
 public:
  StoredSample(const DataFormat& format, int64_t rows, int64_t cols, bool transposed = false)
      : format_(format), rows_(rows), cols_(cols), transposed_(transposed) {
    data_.resize(static_cast<size_t>(rows * cols * BitsPerElement(format.type) / 8));
    if (format.has_zero_points) {
      zero_cols_ = format.group_size == 0 ? 1 : cols / format.group_size;
      zero_points_.resize(static_cast<size_t>((rows + 7) / 8 * zero_cols_ * 4));
    }
    if (format.has_input_order) {
      for (int64_t i = 0; i < cols; ++i) order_.push_back(static_cast<int32_t>(i * 13 % cols));
      place_.resize(order_.size());
      for (size_t i = 0; i < order_.size(); ++i)
        place_[static_cast<size_t>(order_[i])] = static_cast<int64_t>(i);
    }
    using Layout = DataFormat::ScaleLayout;
    switch (format.scale_layout) {
      case Layout::kNone: break;
      case Layout::kPerTensor: scale_rows_ = scale_cols_ = 1; break;
      case Layout::kPerRow: scale_rows_ = rows, scale_cols_ = 1; break;
      case Layout::kPerGroup: scale_rows_ = rows, scale_cols_ = cols / format.group_size; break;
      case Layout::kPerBlock:
        scale_rows_ = (rows + format.block_rows - 1) / format.block_rows;
        scale_cols_ = (cols + format.group_size - 1) / format.group_size;
    }
    scales_.resize(
        static_cast<size_t>(scale_rows_ * scale_cols_ * BitsPerElement(format.scale_type) / 8));
  }

  static StoredSample Make(Random& random, const DataFormat& format, int64_t rows, int64_t cols,
                           bool transposed = false) {
    StoredSample sample(format, rows, cols, transposed);
    for (int64_t n = 0; n < rows; ++n) {
      for (int64_t k = 0; k < cols; ++k) {
        int code = static_cast<int>(random.Integer(0, BitsPerElement(format.type) == 4 ? 15 : 255));
        if (format.type == ElementType::kF8E4M3 && (code & 0x7F) == 0x7F) code ^= 1;
        sample.SetCode(n, k, code);
      }
    }
    for (int64_t i = 0; i < sample.scale_rows_; ++i) {
      for (int64_t j = 0; j < sample.scale_cols_; ++j) sample.SetRandomScale(random, i, j);
    }
    for (std::byte& byte : sample.zero_points_) byte = std::byte(random.Integer(0, 255));
    if (format.has_second_scale) sample.second_scale_ = random.Normal(1)[0];
    return sample;
  }

  void SetCode(int64_t n, int64_t k, int code) {
    if (format_.type == ElementType::kInt4) {
      const auto [index, shift] = Nibble(n, k);
      data_[index] = (data_[index] & ~(std::byte{15} << shift)) | std::byte(code << shift);
    } else if (format_.type == ElementType::kF4E2M1) {
      std::byte& byte = data_[Index(n, k / 2, rows_, cols_ / 2)];
      const int shift = k % 2 != 0 ? 4 : 0;
      byte = (byte & ~(std::byte{15} << shift)) | std::byte(code << shift);
    } else if (HasOffsetCodes()) {
      data_[OffsetIndex(n, k)] = std::byte((code + 128) & 255);
    } else {
      data_[Index(n, k, rows_, cols_)] = std::byte(code);
    }
  }
  void SetScaleByte(int64_t i, int64_t j, int byte) {
    scales_[Index(i, j, scale_rows_, scale_cols_)] = std::byte(byte);
  }

  int Code(int64_t n, int64_t k) const {
    if (format_.type == ElementType::kInt4) {
      const auto [index, shift] = Nibble(n, k);
      return static_cast<int>(data_[index]) >> shift & 15;
    }
    if (format_.type == ElementType::kF4E2M1) {
      const int byte = static_cast<int>(data_[Index(n, k / 2, rows_, cols_ / 2)]);
      return k % 2 != 0 ? byte >> 4 : byte & 15;
    }
    if (HasOffsetCodes()) return (static_cast<int>(data_[OffsetIndex(n, k)]) + 128) & 255;
    return static_cast<int>(data_[Index(n, k, rows_, cols_)]);
  }
  double Number(int64_t n, int64_t k) const {
    const int code = Code(n, k);
    switch (format_.type) {
      case ElementType::kF4E2M1: return E2M1Formula(code);
      case ElementType::kF8E4M3: return E4M3Formula(code);
      case ElementType::kInt4: return code - ZeroPoint(n, k);
      default: return static_cast<int8_t>(code);
    }
  }
  // Returns the product of all scales except second_scale().
  double Scale(int64_t n, int64_t k) const {
    using Layout = DataFormat::ScaleLayout;
    switch (format_.scale_layout) {
      case Layout::kNone: return 1;
      case Layout::kPerTensor: return ScaleAt(0, 0);
      case Layout::kPerRow: return ScaleAt(n, 0);
      case Layout::kPerGroup: return ScaleAt(n, Group(k));
      case Layout::kPerBlock: return ScaleAt(n / format_.block_rows, k / format_.group_size);
    }
    return 1;
  }
  double Value(int64_t n, int64_t k) const { return Number(n, k) * Scale(n, k) * second_scale_; }

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  float second_scale() const { return second_scale_; }
  const DataFormat& format() const { return format_; }
  StoredMatrix view() const {
    StoredMatrix view{format_,        rows_,         cols_,      data_.data(),
                      scales_.data(), second_scale_, transposed_};
    view.has_offset_codes = HasOffsetCodes();
    if (!zero_points_.empty()) view.zero_points = zero_points_.data();
    if (!order_.empty()) view.input_order = order_.data();
    return view;
  }

 private:
  // Whether INT8 groups are stored as in GPTQ. If transposed, four inputs of a row share a word.
  bool HasOffsetCodes() const {
    return format_.type == ElementType::kI8 &&
           format_.scale_layout == DataFormat::ScaleLayout::kPerGroup;
  }
  size_t OffsetIndex(int64_t n, int64_t k) const {
    if (!transposed_) return Index(n, k, rows_, cols_);
    return static_cast<size_t>((k / 4 * rows_ + n) * 4 + k % 4);
  }
  // Returns the byte and the shift of an INT4 code. Words contain eight inputs of a row.
  std::pair<size_t, int> Nibble(int64_t n, int64_t k) const {
    const size_t word = Index(n, k / 8, rows_, cols_ / 8);
    return {word * 4 + static_cast<size_t>(k % 8 / 2), k % 2 != 0 ? 4 : 0};
  }
  int64_t Group(int64_t k) const {
    return (place_.empty() ? k : place_[static_cast<size_t>(k)]) / format_.group_size;
  }
  int ZeroPoint(int64_t n, int64_t k) const {
    if (zero_points_.empty()) return 8;
    const int64_t group = format_.group_size == 0 ? 0 : Group(k);
    const size_t word = Index(n / 8, group, (rows_ + 7) / 8, zero_cols_);
    const int byte = static_cast<int>(zero_points_[word * 4 + static_cast<size_t>(n % 8 / 2)]);
    return n % 2 != 0 ? byte >> 4 : byte & 15;
  }
  size_t Index(int64_t row, int64_t col, int64_t rows, int64_t cols) const {
    return static_cast<size_t>(transposed_ ? col * rows + row : row * cols + col);
  }
  double ScaleAt(int64_t i, int64_t j) const {
    const size_t index = Index(i, j, scale_rows_, scale_cols_);
    switch (format_.scale_type) {
      case ElementType::kF32: {
        float scale;
        std::memcpy(&scale, scales_.data() + 4 * index, 4);
        return scale;
      }
      case ElementType::kBF16: {
        BFloat16 scale;
        std::memcpy(&scale, scales_.data() + 2 * index, 2);
        return ToFloat(scale);
      }
      case ElementType::kF8E4M3: return E4M3Formula(static_cast<int>(scales_[index]));
      default: return E8M0Formula(static_cast<int>(scales_[index]));
    }
  }
  void SetRandomScale(Random& random, int64_t i, int64_t j) {
    const size_t index = Index(i, j, scale_rows_, scale_cols_);
    const float scale = std::abs(random.Normal(1)[0]) + 0.01f;
    const BFloat16 rounded = sluice::ToBFloat16(scale);
    switch (format_.scale_type) {
      case ElementType::kF32: std::memcpy(scales_.data() + 4 * index, &scale, 4); break;
      case ElementType::kBF16: std::memcpy(scales_.data() + 2 * index, &rounded, 2); break;
      case ElementType::kF8E4M3: scales_[index] = std::byte(random.Integer(0, 0x7E)); break;
      default: scales_[index] = std::byte(random.Integer(117, 135));
    }
  }

  DataFormat format_;
  int64_t rows_, cols_;
  bool transposed_;
  int64_t scale_rows_ = 0, scale_cols_ = 0;
  std::vector<std::byte> data_, scales_;
  int64_t zero_cols_ = 0;
  std::vector<std::byte> zero_points_;  // 4 bits each, eight rows per word
  std::vector<int32_t> order_;          // inputs in group order; place_ is the inverse
  std::vector<int64_t> place_;
  float second_scale_ = 1;
};

struct NamedFormat {
  std::string name;
  DataFormat format;
  int64_t col_multiple;  // the number of columns must be a multiple of this
};

inline std::vector<NamedFormat> NarrowFormats() {
  using Layout = DataFormat::ScaleLayout;
  using enum ElementType;
  return {
      {"fp8_tensor", {kF8E4M3, Layout::kPerTensor, kF32, 0, 0, false}, 1},
      {"fp8_row", {kF8E4M3, Layout::kPerRow, kBF16, 0, 0, false}, 1},
      {"fp8_block", {kF8E4M3, Layout::kPerBlock, kF32, 128, 128, false}, 1},
      {"fp8_small_block", {kF8E4M3, Layout::kPerBlock, kBF16, 32, 8, false}, 1},
      {"int8_row", {kI8, Layout::kPerRow, kF32, 0, 0, false}, 1},
      {"int8_32", {kI8, Layout::kPerGroup, kBF16, 32, 0, false}, 32},
      {"int8_128", {kI8, Layout::kPerGroup, kF32, 128, 0, false}, 128},
      {"int8_64_order", {kI8, Layout::kPerGroup, kBF16, 64, 0, false, false, true}, 64},
      {"nvfp4", {kF4E2M1, Layout::kPerGroup, kF8E4M3, 16, 0, true}, 16},
      {"mxfp4", {kF4E2M1, Layout::kPerGroup, kF8E8M0, 32, 0, false}, 32},
      {"int4_row", {kInt4, Layout::kPerRow, kBF16, 0, 0, false}, 8},
      {"int4_row_zero", {kInt4, Layout::kPerRow, kF32, 0, 0, false, true}, 8},
      {"int4_32_zero", {kInt4, Layout::kPerGroup, kBF16, 32, 0, false, true}, 32},
      {"int4_96", {kInt4, Layout::kPerGroup, kBF16, 96, 0, false}, 96},
      {"int4_128", {kInt4, Layout::kPerGroup, kBF16, 128, 0, false}, 128},
      {"int4_128_zero", {kInt4, Layout::kPerGroup, kF32, 128, 0, false, true}, 128},
      {"int4_64_order", {kInt4, Layout::kPerGroup, kBF16, 64, 0, false, true, true}, 64},
  };
}

}  // namespace sluice::kernels
