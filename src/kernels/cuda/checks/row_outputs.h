// Rows that a kernel wrote as RowsOut asks, and their comparison with exact values.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/cuda/checks/check_run.h"
#include "kernels/cuda/checks/tolerances.h"
#include "tensor/float8.h"

namespace sluice::checks {

// The exact values of a row's numbers, and the bounds of what the kernel may be off by before it
// rounds them.
struct ExactRows {
  int64_t rows = 0, cols = 0;
  std::vector<double> values, errors;  // [rows, cols]
};

// How a kernel is asked to write.
struct RowFormat {
  const char* name;
  ElementType type;
  device::RowScale scale = device::RowScale::kStatic;
};
inline constexpr RowFormat kRowFormats[] = {
    {"f32", ElementType::kF32},
    {"bf16", ElementType::kBF16},
    {"fp8 static", ElementType::kF8E4M3, device::RowScale::kStatic},
    {"fp8 per token", ElementType::kF8E4M3, device::RowScale::kPerToken},
};

class RowsOutput {
 public:
  RowsOutput(CaseMemory& memory, const RowFormat& format, int64_t rows, int64_t cols)
      : memory_(memory), rows_(rows), cols_(cols) {
    out_.type = format.type;
    out_.row_scale = format.scale;
    out_.static_scale = 0.03125f * 1.37f;
    if (format.type == ElementType::kF32) out_.data = memory.Out<float>(rows * cols);
    if (format.type == ElementType::kBF16) out_.data = memory.Out<uint16_t>(rows * cols);
    if (format.type == ElementType::kF8E4M3) {
      out_.data = memory.Out<uint8_t>(rows * cols);
      out_.scales = memory.Out<float>(rows);
    }
  }

  const device::RowsOut& args() const { return out_; }

  // What the kernel wrote. A code may be off by its value's bound and by the division in front of
  // it: 2 roundings, or 3 by way of a reciprocal.
  void Compare(const ExactRows& exact, Comparison& comparison) {
    const int64_t count = rows_ * cols_;
    if (out_.type == ElementType::kF32) {
      const auto got = memory_.Read(static_cast<const float*>(out_.data), count);
      for (size_t i = 0; memory_.ok() && i < got.size(); ++i)
        comparison.AddF32(got[i], exact.values[i], exact.errors[i]);
    } else if (out_.type == ElementType::kBF16) {
      const auto got = memory_.Read(static_cast<const uint16_t*>(out_.data), count);
      for (size_t i = 0; memory_.ok() && i < got.size(); ++i)
        comparison.AddBf16(got[i], exact.values[i], exact.errors[i]);
    } else {
      CompareE4m3(exact, comparison);
    }
  }

 private:
  void CompareE4m3(const ExactRows& exact, Comparison& comparison) {
    const auto got = memory_.Read(static_cast<const uint8_t*>(out_.data), rows_ * cols_);
    const auto scales = memory_.Read<float>(out_.scales, rows_);
    if (!memory_.ok()) return;
    for (int64_t row = 0; row < rows_; ++row) {
      const float scale = scales[static_cast<size_t>(row)];
      CompareScale(exact, row, scale, comparison);
      for (int64_t col = 0; col < cols_; ++col) {
        const auto i = static_cast<size_t>(row * cols_ + col);
        const double value = exact.values[i] / scale;
        // A NaN in the scale has been reported; the codes behind it mean nothing.
        if (std::isnan(value) && !std::isnan(exact.values[i])) continue;
        comparison.AddE4m3(got[i], value, exact.errors[i] / scale + std::abs(value) * Gamma(3));
      }
    }
  }

  void CompareScale(const ExactRows& exact, int64_t row, float scale, Comparison& comparison) {
    if (out_.row_scale == device::RowScale::kStatic) {
      comparison.AddF32(scale, out_.static_scale, 0);
      return;
    }
    double largest = 0, error = 0;
    for (int64_t i = row * cols_; i < (row + 1) * cols_; ++i) {
      largest = std::max(largest, std::abs(exact.values[static_cast<size_t>(i)]));
      error = std::max(error, exact.errors[static_cast<size_t>(i)]);
    }
    if (largest == 0) {
      comparison.AddF32(scale, 1, 0);
    } else {
      comparison.AddF32(scale, largest / kFloat8E4M3Max,
                        error / kFloat8E4M3Max + largest / kFloat8E4M3Max * Gamma(2));
    }
  }

  CaseMemory& memory_;
  int64_t rows_, cols_;
  device::RowsOut out_;
};

}  // namespace sluice::checks
