#include "selftest/measured_products.h"

#include "kernels/cuda/linear_plan.h"
#include "kernels/cuda/nvf4_scales.h"

namespace sluice::selftest {

using checks::CaseMemory;
using checks::DeviceUnderTest;
using checks::WeightFormat;

using device::GroupScales;

double MeasuredProduct::WeightBytes(const WeightFormat& format, int64_t n, int64_t k) {
  return static_cast<double>(n) * static_cast<double>(k) * format.bits_per_weight() / 8;
}

MeasuredProduct::MeasuredProduct(const DeviceUnderTest& device, CaseMemory& memory,
                                 device::DeviceLinear& products, const WeightFormat& format,
                                 int64_t m, int64_t n, int64_t k, int64_t copies) {
  const auto& kernels = device.kernels();
  const StreamHandle stream = device.handle();
  const auto fill = [&](ElementType type, int64_t rows, int64_t cols,
                        uint64_t seed) -> const void* {
    uint8_t* out = memory.Out<uint8_t>(rows * cols * device::LinearCodeBits(type) / 8);
    if (memory.ok()) kernels.random_codes(stream, {out, type, seed, 0, rows, cols, 0x1p-19f});
    return out;
  };
  const auto ones = [&](int64_t count) {
    return memory.In(std::vector<float>(static_cast<size_t>(count), 1.0f));
  };
  device::LinearArgs args{};
  args.m = m;
  args.x_type = format.e4m3_inputs ? ElementType::kF8E4M3 : ElementType::kBF16;
  args.x = fill(format.e4m3_inputs ? ElementType::kF8E4M3 : ElementType::kBF16, m, k, 1);
  if (format.e4m3_inputs || format.nvf4_inputs) {
    args.x_scales = ones(m);
    args.same_x_scale = 1;
  }
  args.x_is_mxf4 = format.mxf4_inputs;
  args.y_type = ElementType::kBF16;
  args.y_stride = n;
  args.y = memory.Out<uint16_t>(m * n);
  device::Weights w{};
  w.type = format.type;
  w.group_type = format.group_type;
  w.group = format.group;
  w.block_rows = format.block_rows;
  w.n = n;
  w.k = k;
  if (format.has_row_scales) {
    w.row_scales = ones(n);
    w.same_row_scale = 1;
  }
  args.w = w;
  args.scratch = memory.Out<uint8_t>(products.ScratchBytes(w, m, format.mxf4_inputs) + 256);
  for (int64_t copy = 0; copy < copies; ++copy) {
    args.w.codes = fill(format.type, n, k, 100 + static_cast<uint64_t>(copy));
    if (format.group_type != GroupScales::kNone) {
      const int64_t groups = (k + format.group - 1) / format.group;
      const bool is_block =
          format.group_type == GroupScales::kBlock || format.group_type == GroupScales::kWithZeros;
      const int64_t count =
          is_block ? (n + format.block_rows - 1) / format.block_rows * groups : n * groups;
      const bool is_nvf4 = format.group_type == GroupScales::kE4M3;
      const int64_t bytes =
          is_nvf4 ? device::NvF4ScaleBytes(n, groups) : count * (is_block ? 4 : 1);
      uint8_t* scales = memory.Out<uint8_t>(bytes);
      if (memory.ok()) {
        device.stream().Fill(scales, 0, bytes);
        kernels.random_scales(stream, {.out = scales,
                                       .type = format.group_type,
                                       .tensor_seed = 7,
                                       .count = count,
                                       .value = is_block ? 1.0f : 127,
                                       .first_row = 0,
                                       .groups = groups});
      }
      args.w.group_scales = scales;
    }
    args_.push_back(args);
  }
  bytes_ = WeightBytes(format, n, k) + static_cast<double>(m * k * (format.e4m3_inputs ? 1 : 2)) +
           static_cast<double>(m * n * 2);
  flops_ = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

}  // namespace sluice::selftest
