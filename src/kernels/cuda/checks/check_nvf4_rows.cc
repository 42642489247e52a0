#include "kernels/cuda/checks/check_nvf4_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "kernels/cuda/checks/rows_out.h"
#include "kernels/cuda/checks/test_numbers.h"
#include "kernels/cuda/nvf4_scales.h"
#include "tensor/float4.h"
#include "tensor/float8.h"

namespace sluice::checks {
namespace {

using device::DeviceKernels;

struct NvF4Rows {
  int64_t rows, cols;
  std::vector<float> values;
};

// Returns normally distributed numbers. Some rows are scaled so that group scales are in E4M3's
// coarse range or beyond its maximum.
NvF4Rows NormalRows(int64_t rows, int64_t cols) {
  NvF4Rows x{rows, cols, TestNumbers(46).Normals(rows * cols)};
  constexpr std::array<float, 5> kSizes = {1, 0x1p-13f, 0, 0x1p-12f, 100};
  for (size_t i = 0; i < x.values.size(); ++i)
    x.values[i] *= kSizes[i / static_cast<size_t>(cols) % kSizes.size()];
  return x;
}

// Returns groups in which the largest number, divided by the tensor's scale, has a coarse group
// scale: below E4M3's smallest normal number, at and next to its ties, and beyond its maximum.
NvF4Rows RowsOfCoarseScales(float static_scale) {
  NvF4Rows x{4096, device::kNvF4Group, {}};
  TestNumbers numbers(49);
  for (int64_t row = 0; row < x.rows; ++row) {
    // The values of amax / 6 in units of 2^-9: from 0 to 16 in steps of 1/128, then beyond 448.
    const float unit =
        row < 2048 ? static_cast<float>(row) / 128 : std::exp2(static_cast<float>(row) / 200);
    const float largest = unit * 6 * 0x1p-9f;
    std::vector<float> group = numbers.Normals(x.cols);
    for (float& value : group)
      value = std::clamp(value * largest / 3, -largest, largest) * static_scale;
    group[3] = -largest * static_scale;
    x.values.insert(x.values.end(), group.begin(), group.end());
  }
  return x;
}

NvF4Rows NotFiniteRows() {
  NvF4Rows x{2, 32, std::vector<float>(64, 1.0f)};
  x.values[3] = std::numeric_limits<float>::quiet_NaN();
  x.values[32 + 20] = -std::numeric_limits<float>::infinity();
  return x;
}

// Compares BF16 rows that convert_rows rounds in place with the CPU's, if scales are powers of two.
// Also checks that pack_nvf4 packs these rows without changing their values, and that convert_rows
// gives the same result if it packs the rows itself.
void CheckRoundAndPack(CaseMemory& memory, Comparison& comparison, NvF4Rows x, float static_scale) {
  const int64_t count = x.rows * x.cols, groups = x.cols / device::kNvF4Group;
  for (float& value : x.values) value = FromBf16Bits(ToBFloat16(value).bits);
  uint16_t* rows = memory.InOut(ToBf16Bits(x.values));
  float* row_scales = memory.Out<float>(x.rows);
  const int64_t scale_bytes = device::NvF4ScaleBytes(x.rows, groups);
  uint8_t* const codes_at_once = memory.Out<uint8_t>(count / 2);
  uint8_t* const scales_at_once = memory.Out<uint8_t>(scale_bytes);
  memory.Launch(&DeviceKernels::convert_rows, {rows,
                                               ElementType::kBF16,
                                               x.rows,
                                               x.cols,
                                               {.data = rows,
                                                .type = ElementType::kBF16,
                                                .scales = row_scales,
                                                .row_scale = device::RowScale::kNvF4,
                                                .static_scale = static_scale,
                                                .codes = codes_at_once,
                                                .group_scales = scales_at_once}});
  const auto rounded = memory.Read(rows, count);
  for (const float scale : memory.Read(row_scales, x.rows))
    comparison.AddF32(scale, static_scale, 0);
  if (int exponent = 0; std::frexp(static_scale, &exponent) == 0.5f) {
    comparison.SetSubject("rounded");
    const std::vector<float> expected = RoundedToNvF4(x.values, x.cols, static_scale);
    for (size_t i = 0; i < rounded.size(); ++i)
      comparison.AddF32(FromBf16Bits(rounded[i]) * static_scale, expected[i], 0);
  }

  comparison.SetSubject("packed");
  uint8_t* codes = memory.Out<uint8_t>(count / 2);
  uint8_t* scales = memory.Out<uint8_t>(scale_bytes);
  memory.Launch(&DeviceKernels::pack_nvf4, {rows, x.rows, x.cols, codes, scales});
  const auto got = memory.Read(codes, count / 2);
  const auto got_scales = memory.Read(scales, scale_bytes);
  const auto at_once = memory.Read(codes_at_once, count / 2);
  for (size_t i = 0; i < got.size(); ++i) comparison.AddEqual(at_once[i], got[i]);
  const auto all_at_once = memory.Read(scales_at_once, scale_bytes);
  for (size_t i = 0; i < got_scales.size(); ++i) comparison.AddEqual(all_at_once[i], got_scales[i]);
  std::vector<bool> is_used(got_scales.size());
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(device::NvF4ScaleRow(i / x.cols, groups) +
                                        device::NvF4ScaleGroup(i % x.cols / device::kNvF4Group));
    is_used[at] = true;
    const int byte = got[static_cast<size_t>(i / 2)];
    const float code = Float4ToFloat(static_cast<uint8_t>(i % 2 == 0 ? byte & 15 : byte >> 4));
    const float number = FromBf16Bits(rounded[static_cast<size_t>(i)]);
    comparison.AddF32(code * ToFloat(Float8E4M3{got_scales[at]}), number, 0);
    // A code of 0 must not hide a NaN scale.
    if (std::isnan(number)) comparison.AddEqual(code != 0, 1);
  }
  // The padding of the tiles of scales must be zero.
  for (size_t i = 0; i < got_scales.size(); ++i)
    if (!is_used[i]) comparison.AddEqual(got_scales[i], 0);
}

}  // namespace

void CheckNvF4Rows(CheckRun& run) {
  const auto add = [&](std::string shape, const NvF4Rows& x, float static_scale) {
    run.Case("nvfp4 rows", fmt::format("{}, scale {}", shape, static_scale),
             [&](CaseMemory& memory, Comparison& comparison) {
               CheckRoundAndPack(memory, comparison, x, static_scale);
             });
  };
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{1, 16}, {5, 96}, {130, 48}, {130, 64}, {130, 416}, {3, 8208}}) {
    for (const float static_scale : {0x1p-7f, 0.0131f})
      add(fmt::format("{} x {}", rows, cols), NormalRows(rows, cols), static_scale);
  }
  for (const float static_scale : {1.0f, 0.75f, 0.0371f, 3.3f})
    add("4096 groups of coarse scales", RowsOfCoarseScales(static_scale), static_scale);
  add("2 x 32, NaN and infinity", NotFiniteRows(), 0x1p-7f);
}

}  // namespace sluice::checks
