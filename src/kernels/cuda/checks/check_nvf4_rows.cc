#include "kernels/cuda/checks/check_nvf4_rows.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/thread_pool.h"
#include "kernels/cuda/checks/test_numbers.h"
#include "kernels/cuda/nvf4_scales.h"
#include "kernels/quantize_rows.h"
#include "tensor/float4.h"
#include "tensor/float8.h"

namespace sluice::checks {
namespace {

// A power of two, so that the device's numbers times it are the CPU's bit for bit.
constexpr float kStaticScale = 0x1p-7f;

struct NvF4Shape {
  int64_t rows, cols;
};
constexpr NvF4Shape kShapes[] = {{1, 16}, {5, 96}, {130, 416}, {3, 8208}};

std::vector<float> RoundedByCpu(const std::vector<float>& x, const NvF4Shape& shape) {
  ThreadPool pool(1);
  std::vector<float> rounded(x.size());
  kernels::RoundRows(pool, {.kind = ActivationFormat::Kind::kNvfp4, .group_size = 16}, kStaticScale,
                     {.data = x.data(),
                      .type = ElementType::kF32,
                      .rows = shape.rows,
                      .cols = shape.cols,
                      .stride = shape.cols},
                     rounded.data());
  return rounded;
}

// Normal numbers; of other rows groups whose scales lie where E4M3 is coarse, or beyond its
// largest.
std::vector<float> Numbers(const NvF4Shape& shape) {
  TestNumbers numbers(46);
  std::vector<float> values = numbers.Normals(shape.rows * shape.cols);
  constexpr std::array<float, 5> kSizes = {1, 0x1p-13f, 0, 0x1p-12f, 100};
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] *= kSizes[i / static_cast<size_t>(shape.cols) % kSizes.size()];
    values[i] = FromBf16Bits(ToBFloat16(values[i]).bits);
  }
  return values;
}

device::RowsOut NvF4Rows(CaseMemory& memory, void* data, const NvF4Shape& shape) {
  return {.data = data,
          .type = ElementType::kBF16,
          .scales = memory.Out<float>(shape.rows),
          .row_scale = device::RowScale::kNvF4,
          .static_scale = kStaticScale};
}

void CompareRows(CaseMemory& memory, Comparison& comparison, const device::RowsOut& out,
                 const std::vector<float>& expected, const NvF4Shape& shape) {
  const auto got = memory.Read(static_cast<const uint16_t*>(out.data), shape.rows * shape.cols);
  const auto scales = memory.Read<float>(out.scales, shape.rows);
  if (!memory.ok()) return;
  for (const float scale : scales) comparison.AddF32(scale, kStaticScale, 0);
  for (size_t i = 0; i < got.size(); ++i)
    comparison.AddF32(FromBf16Bits(got[i]) * kStaticScale, expected[i], 0);
}

// In place: rows of BF16 that the rounded ones replace.
Status CheckConverted(CheckRun& run, CaseMemory& memory, Comparison& comparison,
                      const NvF4Shape& shape) {
  const std::vector<float> x = Numbers(shape);
  uint16_t* rows = memory.InOut(ToBf16Bits(x));
  const device::RowsOut out = NvF4Rows(memory, rows, shape);
  if (!memory.ok()) return memory.status();
  run.device().kernels().convert_rows(run.device().handle(),
                                      {rows, ElementType::kBF16, shape.rows, shape.cols, out});
  CompareRows(memory, comparison, out, RoundedByCpu(x, shape), shape);
  return memory.status();
}

// Against its own results in F32, whose errors other checks bound.
Status CheckNormed(CheckRun& run, CaseMemory& memory, Comparison& comparison,
                   const NvF4Shape& shape) {
  const int64_t count = shape.rows * shape.cols;
  TestNumbers numbers(47);
  device::RmsNormArgs args{};
  args.residual = memory.InOut(Numbers(shape));
  args.weight = memory.In(numbers.Normals(shape.cols));
  args.eps = 1e-6f;
  args.rows = shape.rows;
  args.cols = shape.cols;
  args.out = NvF4Rows(memory, memory.Out<uint16_t>(count), shape);
  args.out_f32 = memory.Out<float>(count);
  if (!memory.ok()) return memory.status();
  run.device().kernels().rms_norm(run.device().handle(), args);
  const auto f32 = memory.Read<float>(args.out_f32, count);
  if (!memory.ok()) return memory.status();
  CompareRows(memory, comparison, args.out, RoundedByCpu(f32, shape), shape);
  return memory.status();
}

Status CheckPacked(CheckRun& run, CaseMemory& memory, Comparison& comparison,
                   const NvF4Shape& shape) {
  const int64_t count = shape.rows * shape.cols, groups = shape.cols / device::kNvF4Group;
  std::vector<float> x = RoundedByCpu(Numbers(shape), shape);
  for (float& value : x) value /= kStaticScale;  // exact
  const int64_t scale_bytes = device::NvF4ScaleBytes(shape.rows, groups);
  const uint16_t* rows = memory.In(ToBf16Bits(x));
  uint8_t* codes = memory.Out<uint8_t>(count / 2);
  uint8_t* scales = memory.Out<uint8_t>(scale_bytes);
  if (!memory.ok()) return memory.status();
  run.device().kernels().pack_nvf4(run.device().handle(),
                                   {rows, shape.rows, shape.cols, codes, scales});
  const auto got = memory.Read<uint8_t>(codes, count / 2);
  auto got_scales = memory.Read<uint8_t>(scales, scale_bytes);
  if (!memory.ok()) return memory.status();
  std::vector<bool> is_used(got_scales.size());
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(device::NvF4ScaleRow(i / shape.cols, groups) +
                                        device::NvF4ScaleGroup(i % shape.cols / 16));
    is_used[at] = true;
    const int byte = got[static_cast<size_t>(i / 2)];
    const float code = Float4ToFloat(static_cast<uint8_t>(i % 2 == 0 ? byte & 15 : byte >> 4));
    comparison.AddF32(code * ToFloat(Float8E4M3{got_scales[at]}), x[static_cast<size_t>(i)], 0);
  }
  for (size_t i = 0; i < got_scales.size(); ++i)
    if (!is_used[i]) comparison.AddEqual(got_scales[i], 0);
  return {};
}

}  // namespace

void CheckNvF4Rows(CheckRun& run) {
  for (const NvF4Shape& shape : kShapes) {
    const std::string text = fmt::format("{} x {}", shape.rows, shape.cols);
    run.Case("nvfp4 convert_rows", text, [&](CaseMemory& memory, Comparison& comparison) {
      return CheckConverted(run, memory, comparison, shape);
    });
    run.Case("nvfp4 rms_norm", text, [&](CaseMemory& memory, Comparison& comparison) {
      return CheckNormed(run, memory, comparison, shape);
    });
    run.Case("nvfp4 pack_nvf4", text, [&](CaseMemory& memory, Comparison& comparison) {
      return CheckPacked(run, memory, comparison, shape);
    });
  }
}

}  // namespace sluice::checks
