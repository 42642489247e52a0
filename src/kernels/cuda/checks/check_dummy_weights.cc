// Random weights: a device must make the numbers that a CPU makes.
#include <fmt/format.h>

#include "kernels/cuda/checks/check_run.h"
#include "kernels/cuda/checks/test_numbers.h"
#include "kernels/cuda/nvf4_scales.h"
#include "kernels/random_bits.h"

namespace sluice::checks {
namespace {

using device::GroupScales;

constexpr uint64_t kSeed = 0x123456789ABCDEFu;

Status CheckCodes(CheckRun& run, CaseMemory& memory, Comparison& comparison, ElementType type,
                  int64_t rows, int64_t cols) {
  constexpr int64_t kFirstRow = 7;
  constexpr float kScale = 0x1p-19f;
  const int64_t row_bytes = type == ElementType::kBF16     ? cols * 2
                            : type == ElementType::kF4E2M1 ? cols / 2
                                                           : cols;
  uint8_t* out = memory.Out<uint8_t>(rows * row_bytes);
  if (!memory.ok()) return memory.status();
  run.device().kernels().random_codes(run.device().handle(),
                                      {out, type, kSeed, kFirstRow, rows, cols, kScale});
  const auto got = memory.Read(out, rows * row_bytes);
  if (!memory.ok()) return memory.status();
  for (int64_t i = 0; i < rows * row_bytes; ++i) {
    const int64_t row = i / row_bytes, at = i % row_bytes;
    int64_t expected = 0;
    if (type == ElementType::kBF16) {
      const int64_t element = at / 2;
      const uint64_t bits = kernels::RowBits(kSeed, kFirstRow + row, element / 4 * 4);
      const float value = kernels::UniformNumber(bits >> (16 * (element % 4)), kScale);
      expected = ToBFloat16(value).bits >> (8 * (at % 2)) & 0xFF;
    } else {
      const uint64_t bits = kernels::RowBits(kSeed, kFirstRow + row, at / 8 * 8);
      const auto byte = static_cast<uint8_t>(bits >> (8 * (at % 8)));
      expected = type == ElementType::kF8E4M3 ? kernels::ValidE4m3Code(byte)
                 : type == ElementType::kI8   ? kernels::ValidI8Code(byte)
                                              : byte;
    }
    comparison.AddEqual(got[static_cast<size_t>(i)], expected);
  }
  return {};
}

Status CheckScales(CheckRun& run, CaseMemory& memory, Comparison& comparison, GroupScales type) {
  constexpr int64_t kCount = 1000, kFirstRow = 100, kGroups = 10;  // kE4M3: of 100 rows more
  static_assert(device::NvF4ScaleBytes(kFirstRow + kCount / kGroups, kGroups) <= kCount * 4);
  const float value = type == GroupScales::kE8M0 ? 121 : 0.0123f;
  uint8_t* out = memory.Out<uint8_t>(kCount * 4);
  if (!memory.ok()) return memory.status();
  run.device().kernels().random_scales(run.device().handle(),
                                       {out, type, kSeed, kCount, value, kFirstRow, kGroups});
  const auto got = memory.Read(out, kCount * 4);
  if (!memory.ok()) return memory.status();
  for (int64_t i = 0; i < kCount; ++i) {
    if (type == GroupScales::kBlock) {
      float scale;
      std::memcpy(&scale, got.data() + 4 * i, 4);
      comparison.AddF32(scale, value, 0);
    } else {
      const bool is_e4m3 = type == GroupScales::kE4M3;
      const int64_t at = is_e4m3 ? device::NvF4ScaleRow(kFirstRow + i / kGroups, kGroups) +
                                       device::NvF4ScaleGroup(i % kGroups)
                                 : i;
      comparison.AddEqual(got[static_cast<size_t>(at)],
                          is_e4m3 ? kernels::RandomE4m3Scale(kSeed, i) : 121);
    }
  }
  return {};
}

struct NamedCodes {
  const char* name;
  ElementType type;
};
constexpr NamedCodes kCodes[] = {{"bf16", ElementType::kBF16},
                                 {"fp8", ElementType::kF8E4M3},
                                 {"int8", ElementType::kI8},
                                 {"fp4", ElementType::kF4E2M1}};
struct NamedScales {
  const char* name;
  GroupScales type;
};
constexpr NamedScales kScales[] = {
    {"e4m3", GroupScales::kE4M3}, {"e8m0", GroupScales::kE8M0}, {"blocks", GroupScales::kBlock}};

}  // namespace

void CheckDummyWeights(CheckRun& run) {
  for (const NamedCodes& codes : kCodes) {
    run.Case("random_codes", fmt::format("5 x 96, {}", codes.name),
             [&](CaseMemory& memory, Comparison& comparison) {
               return CheckCodes(run, memory, comparison, codes.type, 5, 96);
             });
  }
  for (const NamedScales& scales : kScales) {
    run.Case("random_scales", fmt::format("1000, {}", scales.name),
             [&](CaseMemory& memory, Comparison& comparison) {
               return CheckScales(run, memory, comparison, scales.type);
             });
  }
}

}  // namespace sluice::checks
