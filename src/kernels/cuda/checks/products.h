// Definitions that the checks of dense and grouped products share: exact products, their error
// bounds, and the comparison with a device's results.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/cuda/checks/checked_device.h"
#include "kernels/cuda/checks/comparison.h"
#include "kernels/cuda/checks/test_numbers.h"
#include "kernels/cuda/checks/test_weights.h"
#include "kernels/cuda/checks/tolerances.h"
#include "kernels/cuda/linear_shapes.h"
#include "kernels/cuda/mxf4_layout.h"

namespace sluice::checks {

// The output y [m, n] of a product, with a row stride, F32 or BF16.
class ProductOutput {
 public:
  ProductOutput(CaseMemory& memory, ElementType type, int64_t m, int64_t n, int64_t stride)
      : memory_(memory), type_(type), m_(m), n_(n), stride_(stride) {
    if (is_f32())
      f32_ = memory.Out<float>(m * stride);
    else
      bf16_ = memory.Out<uint16_t>(m * stride);
  }

  void* data() const { return is_f32() ? static_cast<void*>(f32_) : bf16_; }
  int64_t stride() const { return stride_; }

  void Read() {
    if (is_f32())
      got_f32_ = memory_.Read<float>(f32_, m_ * stride_);
    else
      got_bf16_ = memory_.Read<uint16_t>(bf16_, m_ * stride_);
  }
  void Compare(int64_t m, int64_t n, double expected, double error, Comparison& comparison) const {
    const auto i = static_cast<size_t>(m * stride_ + n);
    if (is_f32())
      comparison.AddF32(got_f32_[i], expected, error);
    else
      comparison.AddBf16(got_bf16_[i], expected, error);
  }
  int64_t BitsAt(int64_t m, int64_t n) const {
    const auto i = static_cast<size_t>(m * stride_ + n);
    if (!is_f32()) return got_bf16_[i];
    uint32_t bits;
    std::memcpy(&bits, &got_f32_[i], 4);
    return bits;
  }
  // Checks that the gaps between rows were not written.
  void CompareGaps(Comparison& comparison) const {
    const int64_t untouched = is_f32() ? 0xFFFFFFFF : 0xFFFF;
    for (int64_t m = 0; m < m_; ++m) {
      for (int64_t n = n_; n < stride_; ++n) comparison.AddEqual(BitsAt(m, n), untouched);
    }
  }

 private:
  bool is_f32() const { return type_ == ElementType::kF32; }

  CaseMemory& memory_;
  ElementType type_;
  int64_t m_, n_, stride_;
  float* f32_ = nullptr;
  uint16_t* bf16_ = nullptr;
  std::vector<float> got_f32_;
  std::vector<uint16_t> got_bf16_;
};

// Returns the arguments of a product with rows [first, first + m) of x, except its results and
// scratch.
inline device::LinearArgs LinearArgsOf(const device::Weights& w, const TestInputs& x, int64_t first,
                                       int64_t m) {
  const int64_t row_bytes = w.k * (x.type == ElementType::kF8E4M3 ? 1 : 2);
  device::LinearArgs args{};
  args.w = w;
  args.x = x.data == nullptr ? nullptr : static_cast<const std::byte*>(x.data) + first * row_bytes;
  args.x_type = x.type;
  args.x_scales = x.device_scales == nullptr ? nullptr : x.device_scales + first;
  args.m = m;
  args.x_is_mxf4 = x.is_mxf4;
  return args;
}

// Packs the rows of x if kernels multiply their codes.
inline void PackInputs(CaseMemory& memory, device::LinearArgs& args) {
  if (!args.x_is_mxf4 || !memory.device().has_mxf4_products()) return;
  const int64_t groups = args.w.k / device::kMxF4Group;
  uint8_t* const codes = memory.Out<uint8_t>(args.m * args.w.k / 2);
  uint8_t* const scales = memory.Out<uint8_t>(args.m * groups);
  memory.Launch(&device::DeviceKernels::pack_mxf4,
                {static_cast<const uint16_t*>(args.x), args.m, args.w.k, codes, scales});
  args.x_codes = codes;
  args.x_group_scales = scales;
}

using LinearKernel = void (*device::DeviceKernels::*)(const StreamHandle&,
                                                      const device::LinearArgs&);

// Returns the results of `args` by one of our own kernels, with type `y_type` and stride
// `y_stride`.
inline ProductOutput Multiply(CaseMemory& memory, device::LinearArgs args, ElementType y_type,
                              int64_t y_stride,
                              LinearKernel kernel = &device::DeviceKernels::linear) {
  ProductOutput y(memory, y_type, args.m, args.w.n, y_stride);
  args.y = y.data();
  args.y_type = y_type;
  args.y_stride = y_stride;
  args.scratch = memory.Out<uint8_t>(device::LinearScratchBytes(args.w, args.m));
  PackInputs(memory, args);
  memory.Require(device::CheckLinear(args));
  memory.Launch(kernel, args);
  y.Read();
  return y;
}

// The results of a matrix that are compared: all results of a small matrix, or a sample of those of
// a large matrix.
class SampledPlaces {
 public:
  SampledPlaces(int64_t m, int64_t n) {
    TestNumbers numbers(65);
    constexpr int64_t kAll = 1 << 14, kRows = 6, kColumns = 96;
    const bool all = m * n <= kAll;
    for (int64_t i = 0; i < (all ? m : std::min(m, kRows)); ++i)
      rows_.push_back(all || m <= kRows ? i : i == 0 ? m - 1 : numbers.Integer(0, m - 1));
    for (int64_t i = 0; i < (all ? n : std::min(n, kColumns)); ++i)
      columns_.push_back(all || n <= kColumns ? i : i == 0 ? n - 1 : numbers.Integer(0, n - 1));
  }
  const std::vector<int64_t>& rows() const { return rows_; }
  const std::vector<int64_t>& columns() const { return columns_; }

 private:
  std::vector<int64_t> rows_, columns_;
};

// Computes the exact results of one expert's rows.
struct ProductRows {
  const TestWeights& weights;
  int64_t expert;
  const TestInputs& x;
  int64_t k;
  const std::vector<float>& bias;
  NumberKind kind;
  bool e4m3_inputs;
  bool by_groups = false;  // DeviceKernels::linear_groups

  // Calls visit(m, expected, error) for each of `rows` and output n.
  template <typename Visit>
  void ForColumn(const DeviceUnderTest& device, int64_t n, const std::vector<int64_t>& rows,
                 const Visit& visit) const {
    std::vector<double> w;
    weights.DecodeRow(expert, n, w);
    const double row_scale = weights.RowScale(expert, n);
    // The bound counts these roundings: those of the sum, of its separately scaled parts, of the
    // scales of row and input, and of the bias.
    const double relative =
        kind == NumberKind::kIntegers
            ? 0
            : (by_groups ? GroupProductError(device, static_cast<double>(k))
                         : ProductError(device, static_cast<double>(k), e4m3_inputs)) +
                  Gamma(2.0 * static_cast<double>(weights.scaled_sums()) + 4);
    for (const int64_t m : rows) {
      double sum = 0, size = 0;
      const double* from = x.values.data() + m * k;
      for (int64_t i = 0; i < k; ++i) {
        const double product = from[i] * w[static_cast<size_t>(i)];
        sum += product;
        size += std::abs(product);
      }
      const double scale = row_scale * (x.scales.empty() ? 1.0 : x.scales[static_cast<size_t>(m)]);
      double expected = sum * scale;
      size *= std::abs(scale);
      if (!bias.empty()) {
        expected += bias[static_cast<size_t>(n)];
        size += std::abs(bias[static_cast<size_t>(n)]);
      }
      visit(m, expected, size * relative);
    }
  }
};

}  // namespace sluice::checks
