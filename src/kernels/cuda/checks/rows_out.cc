#include "kernels/cuda/checks/rows_out.h"

#include <algorithm>
#include <bit>
#include <set>

#include <fmt/format.h>

#include "base/thread_pool.h"
#include "kernels/cuda/checks/test_numbers.h"
#include "kernels/cuda/mxf4_layout.h"
#include "kernels/cuda/nvf4_scales.h"
#include "kernels/quantize_rows.h"

namespace sluice::checks {
namespace {

using device::RowScale;
using device::RowsOut;
using Kind = ActivationFormat::Kind;

// Returns F32 rows, rounded by the CPU to a type of at most 8 bits.
std::vector<float> RoundedByCpu(const std::vector<float>& rows, int64_t cols,
                                const ActivationFormat& format, float scale) {
  ThreadPool pool(1);
  std::vector<float> rounded(rows.size());
  kernels::RoundRows(pool, format, scale,
                     {.data = rows.data(),
                      .type = ElementType::kF32,
                      .rows = static_cast<int64_t>(rows.size()) / cols,
                      .cols = cols,
                      .stride = cols},
                     rounded.data());
  return rounded;
}

void CompareE4m3(CaseMemory& memory, Comparison& comparison, const std::vector<float>& f32,
                 int64_t cols, RowScale row_scale, const LaunchRows& launch) {
  constexpr float kStaticScale = 0.0371f;
  const int64_t count = static_cast<int64_t>(f32.size()), rows = count / cols;
  const bool per_token = row_scale == RowScale::kPerToken;
  comparison.SetSubject(per_token ? "fp8 per token" : "fp8 static");
  uint8_t* codes = memory.Out<uint8_t>(count);
  float* scales = memory.Out<float>(rows);
  launch(0, rows,
         {.data = codes,
          .type = ElementType::kF8E4M3,
          .scales = scales,
          .row_scale = row_scale,
          .static_scale = kStaticScale});
  const auto got = memory.Read(codes, count);
  const auto got_scales = memory.Read(scales, rows);
  const std::vector<float> expected = RoundedByCpu(
      f32, cols, {.kind = per_token ? Kind::kFp8PerToken : Kind::kFp8Static}, kStaticScale);
  for (size_t i = 0; i < got.size(); ++i) {
    const float scale = got_scales[i / static_cast<size_t>(cols)];
    comparison.AddF32(ToFloat(Float8E4M3{got[i]}) * scale, expected[i], 0);
  }
  for (const float scale : got_scales)
    if (!per_token) comparison.AddF32(scale, kStaticScale, 0);
}

void CompareNvF4(CaseMemory& memory, Comparison& comparison, const std::vector<float>& f32,
                 int64_t cols, float static_scale, const LaunchRows& launch) {
  const int64_t count = static_cast<int64_t>(f32.size()), rows = count / cols;
  comparison.SetSubject(fmt::format("nvfp4 at {}", static_scale));
  uint16_t* numbers = memory.Out<uint16_t>(count);
  float* scales = memory.Out<float>(rows);
  launch(0, rows,
         {.data = numbers,
          .type = ElementType::kBF16,
          .scales = scales,
          .row_scale = RowScale::kNvF4,
          .static_scale = static_scale});
  const auto got = memory.Read(numbers, count);
  const std::vector<float> expected = RoundedToNvF4(f32, cols, static_scale);
  for (size_t i = 0; i < got.size(); ++i)
    comparison.AddF32(FromBf16Bits(got[i]) * static_scale, expected[i], 0);
  for (const float scale : memory.Read(scales, rows)) comparison.AddF32(scale, static_scale, 0);
}

void CompareMxF4(CaseMemory& memory, Comparison& comparison, const std::vector<float>& f32,
                 int64_t cols, const LaunchRows& launch) {
  const int64_t count = static_cast<int64_t>(f32.size());
  comparison.SetSubject("mxfp4");
  uint16_t* numbers = memory.Out<uint16_t>(count);
  launch(0, count / cols,
         {.data = numbers, .type = ElementType::kBF16, .row_scale = RowScale::kMxF4});
  const auto got = memory.Read(numbers, count);
  const std::vector<float> expected = RoundedToMxF4(f32, cols);
  for (size_t i = 0; i < got.size(); ++i)
    comparison.AddEqual(uint32_t{got[i]} << 16, std::bit_cast<uint32_t>(expected[i]));
}

// Rows that the kernel packs as it writes them must have the bits that pack_nvf4 makes of the rows
// that it writes, and those rows the bits that they have without packing.
void ComparePacked(CaseMemory& memory, Comparison& comparison, int64_t rows, int64_t cols,
                   float static_scale, const LaunchRows& launch) {
  comparison.SetSubject(fmt::format("packed nvfp4 at {}", static_scale));
  const int64_t code_bytes = rows * cols / 2;
  const int64_t scale_bytes = device::NvF4ScaleBytes(rows, cols / device::kNvF4Group);
  struct Packed {
    uint16_t* rows;
    uint8_t *codes, *scales;
  };
  const auto allocate = [&] {
    return Packed{memory.Out<uint16_t>(rows * cols), memory.Out<uint8_t>(code_bytes),
                  memory.Out<uint8_t>(scale_bytes)};
  };
  const auto out_of = [&](const Packed& packed, bool packs) {
    return RowsOut{.data = packed.rows,
                   .type = ElementType::kBF16,
                   .scales = memory.Out<float>(rows),
                   .row_scale = RowScale::kNvF4,
                   .static_scale = static_scale,
                   .codes = packs ? packed.codes : nullptr,
                   .group_scales = packs ? packed.scales : nullptr};
  };
  const Packed together = allocate(), apart = allocate();
  launch(0, rows, out_of(together, true));
  launch(0, rows, out_of(apart, false));
  memory.Launch(&device::DeviceKernels::pack_nvf4,
                {apart.rows, rows, cols, apart.codes, apart.scales});
  const auto compare = [&](const auto* got, const auto* expected, int64_t count) {
    const auto numbers = memory.Read(got, count), others = memory.Read(expected, count);
    for (size_t i = 0; i < numbers.size(); ++i) comparison.AddEqual(numbers[i], others[i]);
  };
  compare(together.rows, apart.rows, rows * cols);
  compare(together.codes, apart.codes, code_bytes);
  compare(together.scales, apart.scales, scale_bytes);
}

}  // namespace

std::vector<float> RoundedToNvF4(const std::vector<float>& rows, int64_t cols, float static_scale) {
  return RoundedByCpu(rows, cols, {.kind = Kind::kNvfp4, .group_size = device::kNvF4Group},
                      static_scale);
}

std::vector<float> RoundedToMxF4(const std::vector<float>& rows, int64_t cols) {
  return RoundedByCpu(rows, cols, {.kind = Kind::kMxfp4, .group_size = device::kMxF4Group}, 1);
}

std::vector<float> CompareRows(CaseMemory& memory, Comparison& comparison, const ExactRows& exact,
                               const LaunchRows& launch, bool packs) {
  const int64_t rows = exact.rows, cols = exact.cols;
  const auto f32_rows = [&](int64_t first, int64_t count) {
    float* out = memory.Out<float>(count * cols);
    launch(first, count, {.data = out, .type = ElementType::kF32});
    return memory.Read(out, count * cols);
  };
  comparison.SetSubject("f32");
  const std::vector<float> f32 = f32_rows(0, rows);
  for (size_t i = 0; i < f32.size(); ++i)
    comparison.AddF32(f32[i], exact.values[i], exact.errors[i]);

  comparison.SetSubject("a row alone");
  for (const int64_t row : std::set<int64_t>{0, rows / 2, rows - 1}) {
    const std::vector<float> alone = f32_rows(row, 1);
    for (size_t i = 0; i < alone.size(); ++i)
      comparison.AddEqual(std::bit_cast<int32_t>(alone[i]),
                          std::bit_cast<int32_t>(f32[static_cast<size_t>(row * cols) + i]));
  }

  comparison.SetSubject("bf16");
  uint16_t* bf16 = memory.Out<uint16_t>(rows * cols);
  launch(0, rows, {.data = bf16, .type = ElementType::kBF16});
  const auto bits = memory.Read(bf16, rows * cols);
  for (size_t i = 0; i < bits.size(); ++i) comparison.AddEqual(bits[i], ToBFloat16(f32[i]).bits);

  for (const RowScale scale : {RowScale::kStatic, RowScale::kPerToken})
    CompareE4m3(memory, comparison, f32, cols, scale, launch);
  if (cols % device::kNvF4Group == 0) {
    for (const float static_scale : {0x1p-8f, 0x1p3f, 0x1p-20f})
      CompareNvF4(memory, comparison, f32, cols, static_scale, launch);
    // With the second scale, groups of numbers near 1 have the smallest group scales.
    for (const float static_scale : {0x1p-8f, 0x1p7f})
      if (packs) ComparePacked(memory, comparison, rows, cols, static_scale, launch);
  }
  if (cols % device::kMxF4Group == 0) CompareMxF4(memory, comparison, f32, cols, launch);
  comparison.SetSubject("");
  return f32;
}

}  // namespace sluice::checks
