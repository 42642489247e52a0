#include "kernels/cuda/checks/check_mxf4_rows.h"

#include <bit>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "kernels/cuda/checks/rows_out.h"
#include "kernels/cuda/checks/test_numbers.h"
#include "kernels/cuda/mxf4_layout.h"
#include "tensor/float4.h"

namespace sluice::checks {
namespace {

using device::DeviceKernels;

struct MxF4Rows {
  int64_t rows, cols;
  std::vector<float> values;
};

MxF4Rows NormalMxF4Rows(int64_t rows, int64_t cols) {
  return {rows, cols, TestNumbers(47).Normals(rows * cols)};
}

// Returns groups whose largest number has each exponent of BF16, and each mantissa: those from 1.75
// on round the scale up. The other numbers of a group are at, below and above the ties of E2M1.
MxF4Rows RowsOfEveryScale() {
  constexpr int kMantissas = 128;
  constexpr float kTies[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5};
  MxF4Rows x{255 * kMantissas / 4, 4 * device::kMxF4Group, {}};
  TestNumbers numbers(48);
  for (int group = 0; group < 255 * kMantissas; ++group) {
    const float largest = FromBf16Bits(static_cast<uint16_t>(group));
    const float scale = PowerOfTwoToFloat(PowerOfTwoScale(largest));
    for (int i = 0; i < device::kMxF4Group; ++i) {
      const float tie = kTies[numbers.Integer(0, 6)] * scale;
      float value = i % 3 == 0   ? tie
                    : i % 3 == 1 ? tie * (numbers.Integer(0, 1) == 0 ? 0.98f : 1.02f)
                                 : largest * numbers.Uniform(0, 1);
      value = std::min(value, largest);
      if (i == group % device::kMxF4Group) value = largest;
      x.values.push_back(numbers.Integer(0, 1) == 0 ? value : -value);
    }
  }
  return x;
}

// Returns groups of which all but the last have one number that is NaN or infinite.
MxF4Rows NotFiniteMxF4Rows() {
  constexpr uint32_t kNotFinite[] = {0x7FC00000, 0xFFC00000, 0x7FFF0000, 0xFFFF0000,
                                     0x7F800000, 0xFF800000, 0x7F810000};
  MxF4Rows x{4, 64, std::vector<float>(256, 1.0f)};
  size_t place = 0;
  for (const uint32_t bits : kNotFinite) {
    x.values[place + place / device::kMxF4Group * 5 % device::kMxF4Group] =
        std::bit_cast<float>(bits);
    place += device::kMxF4Group;
  }
  return x;
}

// Returns whether each group has only finite numbers.
std::vector<bool> FiniteGroups(const std::vector<float>& values) {
  std::vector<bool> are_finite(values.size() / device::kMxF4Group, true);
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) are_finite[i / device::kMxF4Group] = false;
  }
  return are_finite;
}

// A group with NaN or infinity must become NaN, and its packed scale 0xFF. The bits of NaN differ
// between devices.
void CheckRoundAndPack(CaseMemory& memory, Comparison& comparison, MxF4Rows x) {
  const int64_t count = x.rows * x.cols;
  for (float& value : x.values) value = FromBf16Bits(ToBFloat16(value).bits);
  uint16_t* rows = memory.InOut(ToBf16Bits(x.values));
  memory.Launch(&DeviceKernels::convert_rows,
                {rows,
                 ElementType::kBF16,
                 x.rows,
                 x.cols,
                 {.data = rows, .type = ElementType::kBF16, .row_scale = device::RowScale::kMxF4}});
  const auto rounded = memory.Read(rows, count);
  comparison.SetSubject("rounded");
  const std::vector<float> expected = RoundedToMxF4(x.values, x.cols);
  const std::vector<bool> are_finite = FiniteGroups(x.values);
  for (size_t i = 0; i < rounded.size(); ++i) {
    if (are_finite[i / device::kMxF4Group]) {
      comparison.AddEqual(uint32_t{rounded[i]} << 16, std::bit_cast<uint32_t>(expected[i]));
    } else {
      comparison.AddEqual(std::isnan(FromBf16Bits(rounded[i])), true);
      comparison.AddEqual(std::isnan(expected[i]), true);
    }
  }

  comparison.SetSubject("packed");
  uint8_t* codes = memory.Out<uint8_t>(count / 2);
  uint8_t* scales = memory.Out<uint8_t>(count / device::kMxF4Group);
  memory.Launch(&DeviceKernels::pack_mxf4, {rows, x.rows, x.cols, codes, scales});
  const auto got = memory.Read(codes, count / 2);
  const auto got_scales = memory.Read(scales, count / device::kMxF4Group);
  for (size_t i = 0; i < rounded.size(); ++i) {
    if (!are_finite[i / device::kMxF4Group]) {
      comparison.AddEqual(got_scales[i / device::kMxF4Group], 0xFF);
      continue;
    }
    const int byte = got[i / 2];
    const float code = Float4ToFloat(static_cast<uint8_t>(i % 2 == 0 ? byte & 15 : byte >> 4));
    const float scale = PowerOfTwoToFloat(got_scales[i / device::kMxF4Group]);
    comparison.AddEqual(std::bit_cast<uint32_t>(code * scale), uint32_t{rounded[i]} << 16);
  }
}

}  // namespace

void CheckMxF4Rows(CheckRun& run) {
  const auto add = [&](const std::string& shape, const MxF4Rows& x) {
    run.Case("mxfp4 rows", shape, [&](CaseMemory& memory, Comparison& comparison) {
      CheckRoundAndPack(memory, comparison, x);
    });
  };
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{1, 32}, {5, 96}, {130, 64}, {3, 8224}})
    add(fmt::format("{} x {}", rows, cols), NormalMxF4Rows(rows, cols));
  add("groups of every scale", RowsOfEveryScale());
  add("4 x 64, NaN and infinity", NotFiniteMxF4Rows());
}

}  // namespace sluice::checks
