// Random weights as devices hold them, and what they are worth by the published formulas.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cuda/device_kernels.h"
#include "kernels/cuda/nvf4_scales.h"
#include "kernels/stored_matrix_testing.h"

namespace sluice::device {

struct WeightsFormat {
  std::string name;
  ElementType type;
  GroupScales group_type = GroupScales::kNone;
  int group = 0, block_rows = 0;
  bool has_row_scales = false;
  ElementType x_type = ElementType::kBF16;
};

inline std::vector<WeightsFormat> AllWeightsFormats() {
  return {
      {"bf16", ElementType::kBF16},
      {"f8_rows", ElementType::kF8E4M3, GroupScales::kNone, 0, 0, true},
      {"f8_inputs", ElementType::kF8E4M3, GroupScales::kNone, 0, 0, true, ElementType::kF8E4M3},
      {"f8_blocks", ElementType::kF8E4M3, GroupScales::kBlock, 128, 128},
      {"f8_small_blocks", ElementType::kF8E4M3, GroupScales::kBlock, 32, 8},
      {"i8_rows", ElementType::kI8, GroupScales::kNone, 0, 0, true},
      {"nvf4", ElementType::kF4E2M1, GroupScales::kE4M3, 16, 0, true},
      {"mxf4", ElementType::kF4E2M1, GroupScales::kE8M0, 32, 0},
  };
}

// `experts` matrices [n, k], one behind the other.
class WeightsSample {
 public:
  WeightsSample(kernels::Random& random, const WeightsFormat& format, int64_t n, int64_t k,
                int64_t experts = 1)
      : format_(format), n_(n), k_(k) {
    const int bits = format.type == ElementType::kBF16     ? 16
                     : format.type == ElementType::kF4E2M1 ? 4
                                                           : 8;
    codes_stride_ = n * k * bits / 8;
    codes_.resize(static_cast<size_t>(codes_stride_ * experts));
    if (format.type == ElementType::kBF16) {
      const auto values = kernels::ToBFloat16(random.Normal(n * k * experts));
      std::memcpy(codes_.data(), values.data(), codes_.size());
    } else {
      for (uint8_t& code : codes_) {
        code = static_cast<uint8_t>(random.Integer(0, 255));
        if (format.type == ElementType::kF8E4M3 && (code & 0x7F) == 0x7F) code ^= 1;
      }
    }
    scale_cols_ = format.group == 0 ? 0 : (k + format.group - 1) / format.group;
    if (format.group_type == GroupScales::kBlock) {
      const int64_t rows = (n + format.block_rows - 1) / format.block_rows;
      scale_bytes_ = rows * scale_cols_ * 4;
      block_scales_ = random.Normal(rows * scale_cols_ * experts);
    } else if (format.group != 0) {
      const bool is_e4m3 = format.group_type == GroupScales::kE4M3;
      scale_bytes_ = is_e4m3 ? NvF4ScaleBytes(n, scale_cols_) : n * scale_cols_;
      group_scales_.resize(static_cast<size_t>(scale_bytes_ * experts));
      for (uint8_t& scale : group_scales_)
        scale = static_cast<uint8_t>(is_e4m3 ? random.Integer(0, 0x7E) : random.Integer(117, 135));
    }
    if (format.has_row_scales) row_scales_ = random.Normal(n * experts);
  }

  Weights view() const {
    const void* scales = nullptr;
    if (!block_scales_.empty()) scales = block_scales_.data();
    if (!group_scales_.empty()) scales = group_scales_.data();
    return {codes_.data(),
            format_.type,
            scales,
            format_.group_type,
            format_.group,
            format_.block_rows,
            row_scales_.empty() ? nullptr : row_scales_.data(),
            n_,
            k_};
  }

  // But for the row's scale.
  double Number(int64_t n, int64_t k, int64_t expert = 0) const {
    double scale = 1;
    if (format_.group != 0) {
      const size_t at = ScaleAt(n, k / format_.group, expert);
      scale = format_.group_type == GroupScales::kBlock  ? block_scales_[at]
              : format_.group_type == GroupScales::kE4M3 ? kernels::E4M3Formula(group_scales_[at])
                                                         : kernels::E8M0Formula(group_scales_[at]);
    }
    return scale * CodeNumber(codes_.data() + expert * codes_stride_, n * k_ + k);
  }
  double RowScale(int64_t n, int64_t expert = 0) const {
    return row_scales_.empty() ? 1 : row_scales_[static_cast<size_t>(expert * n_ + n)];
  }

  int64_t codes_stride() const { return codes_stride_; }
  int64_t group_scales_stride() const { return scale_bytes_; }
  // Where the scale of a row's group stands.
  size_t ScaleAt(int64_t n, int64_t group, int64_t expert = 0) const {
    int64_t at = expert * scale_bytes_;
    switch (format_.group_type) {
      case GroupScales::kBlock: at = at / 4 + n / format_.block_rows * scale_cols_ + group; break;
      case GroupScales::kE4M3: at += NvF4ScaleRow(n, scale_cols_) + NvF4ScaleGroup(group); break;
      default: at += n * scale_cols_ + group;
    }
    return static_cast<size_t>(at);
  }
  std::vector<uint8_t>& codes() { return codes_; }
  std::vector<uint8_t>& group_scales() { return group_scales_; }
  const WeightsFormat& format() const { return format_; }

 private:
  double CodeNumber(const uint8_t* codes, int64_t index) const {
    switch (format_.type) {
      case ElementType::kBF16: {
        BFloat16 value;
        std::memcpy(&value, codes + 2 * index, 2);
        return ToFloat(value);
      }
      case ElementType::kF8E4M3: return kernels::E4M3Formula(codes[index]);
      case ElementType::kI8: return static_cast<int8_t>(codes[index]);
      default: break;
    }
    return kernels::E2M1Formula(codes[index / 2] >> (index % 2 * 4) & 15);
  }

  WeightsFormat format_;
  int64_t n_, k_;
  int64_t codes_stride_ = 0, scale_cols_ = 0;
  int64_t scale_bytes_ = 0;  // of an expert
  std::vector<uint8_t> codes_, group_scales_;
  std::vector<float> block_scales_, row_scales_;
};

// Rows of x [m, k] as products take them.
class InputSample {
 public:
  InputSample(kernels::Random& random, ElementType type, int64_t m, int64_t k)
      : type_(type), m_(m), k_(k) {
    const size_t bytes = static_cast<size_t>(m * k) * (type == ElementType::kF8E4M3 ? 1 : 2);
    data_.resize(bytes);
    if (type == ElementType::kF8E4M3) {
      for (uint8_t& code : data_) {
        code = static_cast<uint8_t>(random.Integer(0, 255));
        if ((code & 0x7F) == 0x7F) code ^= 1;
      }
      scales_ = random.Normal(m);
    } else {
      const auto values = kernels::ToBFloat16(random.Normal(m * k));
      std::memcpy(data_.data(), values.data(), bytes);
    }
  }

  // But for the row's scale.
  double Value(int64_t m, int64_t k) const {
    const auto index = static_cast<size_t>(m * k_ + k);
    if (type_ == ElementType::kF8E4M3) return kernels::E4M3Formula(data_[index]);
    BFloat16 value;
    std::memcpy(&value, data_.data() + 2 * index, 2);
    return ToFloat(value);
  }
  double RowScale(int64_t m) const { return scales_.empty() ? 1 : scales_[static_cast<size_t>(m)]; }

  ElementType type() const { return type_; }
  int64_t row_bytes() const { return static_cast<int64_t>(data_.size()) / m_; }
  const uint8_t* data() const { return data_.data(); }
  const float* scales() const { return scales_.empty() ? nullptr : scales_.data(); }

 private:
  ElementType type_;
  int64_t m_, k_;
  std::vector<uint8_t> data_;
  std::vector<float> scales_;
};

}  // namespace sluice::device
