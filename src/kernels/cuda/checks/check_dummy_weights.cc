// Checks random weights: a device must generate the same weights as a CPU.
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "kernels/cuda/checks/check_run.h"
#include "kernels/cuda/checks/test_numbers.h"
#include "kernels/cuda/linear_plan.h"
#include "kernels/cuda/nvf4_scales.h"
#include "kernels/random_bits.h"

namespace sluice::checks {
namespace {

using device::DeviceKernels;
using device::GroupScales;

constexpr uint64_t kSeed = 0x0123456789ABCDEFu;

// Return the hash of a row, and the row's elements (or bytes) from `at` on, as random_bits.h
// describes: element i starts at bit 16 * i (byte i at bit 8 * i).
uint64_t HashOf(int64_t row, int64_t at) {
  const uint64_t row_seed = kernels::MixBits(kSeed + static_cast<uint64_t>(row));
  return kernels::MixBits(row_seed + static_cast<uint64_t>(at));
}

int64_t RowBytes(ElementType type, int64_t cols) {
  return cols * device::LinearCodeBits(type) / 8;
}

std::vector<uint8_t> MakeCodes(CaseMemory& memory, ElementType type, int64_t first_row,
                               int64_t rows, int64_t cols, float scale) {
  const int64_t bytes = rows * RowBytes(type, cols);
  uint8_t* out = memory.Out<uint8_t>(bytes);
  memory.Launch(&DeviceKernels::random_codes, {out, type, kSeed, first_row, rows, cols, scale});
  return memory.Read(out, bytes);
}

void CheckCodes(CaseMemory& memory, Comparison& comparison, ElementType type, int64_t cols) {
  constexpr int64_t kRows = 5, kFirstRow = 1000;
  constexpr float kScale = 0x1.3p-12f;
  const int64_t row_bytes = RowBytes(type, cols);
  const std::vector<uint8_t> got = MakeCodes(memory, type, kFirstRow, kRows, cols, kScale);
  for (int64_t i = 0; i < kRows * row_bytes; ++i) {
    const int64_t row = kFirstRow + i / row_bytes, at = i % row_bytes;
    int64_t expected = 0;
    if (type == ElementType::kBF16) {
      const int64_t element = at / 2;
      const auto integer =
          static_cast<int16_t>(HashOf(row, element / 4 * 4) >> (16 * (element % 4)));
      expected = ToBFloat16(static_cast<float>(integer) * kScale).bits >> (8 * (at % 2)) & 0xFF;
    } else {
      auto code = static_cast<uint8_t>(HashOf(row, at / 8 * 8) >> (8 * (at % 8)));
      if (type == ElementType::kF8E4M3 && code == 0x7F) code = 0x70;
      if (type == ElementType::kF8E4M3 && code == 0xFF) code = 0xF0;
      if (type == ElementType::kI8 && code == 0x80) code = 0;
      expected = code;
    }
    comparison.AddEqual(got[static_cast<size_t>(i)], expected);
  }
  comparison.SetSubject("the last row by itself");
  const std::vector<uint8_t> last = MakeCodes(memory, type, kFirstRow + kRows - 1, 1, cols, kScale);
  for (size_t i = 0; i < last.size(); ++i)
    comparison.AddEqual(last[i], got[got.size() - last.size() + i]);
}

// Checks that all codes occur, except NaN and the integer -128.
void CheckEveryCode(CaseMemory& memory, Comparison& comparison, ElementType type) {
  const std::vector<uint8_t> codes = MakeCodes(memory, type, 0, 16, 1024, 1);
  std::array<bool, 256> is_there{};
  for (const uint8_t code : codes) is_there[code] = true;
  for (size_t code = 0; code < is_there.size(); ++code) {
    const bool is_valid = type == ElementType::kF8E4M3 ? (code & 0x7F) != 0x7F : code != 0x80;
    comparison.AddEqual(is_there[code], is_valid);
  }
}

void CheckConstantScales(CaseMemory& memory, Comparison& comparison, GroupScales type) {
  constexpr int64_t kCount = 1000;
  const bool is_block = type != GroupScales::kE8M0;
  const float value = is_block ? 0.0123f : 121;
  uint8_t* out = memory.Out<uint8_t>(kCount * (is_block ? 4 : 1));
  memory.Launch(&DeviceKernels::random_scales,
                {.out = out, .type = type, .tensor_seed = kSeed, .count = kCount, .value = value});
  const auto got = memory.Read(out, kCount * (is_block ? 4 : 1));
  for (size_t i = 0; i < kCount; ++i) {
    float scale = got[i];
    if (is_block) std::memcpy(&scale, got.data() + 4 * i, 4);
    comparison.AddF32(scale, value, 0);
  }
}

// Checks the scales of rows that may cross the end of a tile of scales. The bytes between these
// scales must not be written.
void CheckGroupScales(CaseMemory& memory, Comparison& comparison, int64_t first_row, int64_t rows,
                      int64_t groups) {
  const int64_t bytes = device::NvF4ScaleBytes(first_row + rows, groups);
  uint8_t* out = memory.Out<uint8_t>(bytes);
  memory.Launch(&DeviceKernels::random_scales, {.out = out,
                                                .type = GroupScales::kE4M3,
                                                .tensor_seed = kSeed,
                                                .count = rows * groups,
                                                .value = 0,
                                                .first_row = first_row,
                                                .groups = groups});
  std::vector<uint8_t> expected(static_cast<size_t>(bytes), 0xFF);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t group = 0; group < groups; ++group) {
      // The PTX ISA defines this order of bytes.
      const int64_t r = first_row + row, tile = r / 128 * ((groups + 3) / 4) + group / 4;
      const auto at = static_cast<size_t>(tile * 512 + r % 32 * 16 + r % 128 / 32 * 4 + group % 4);
      const auto index = static_cast<uint64_t>(row * groups + group);
      expected[at] = static_cast<uint8_t>(0x30 + (kernels::MixBits(kSeed + index) & 0xF));
    }
  }
  const auto got = memory.Read(out, bytes);
  for (size_t i = 0; i < got.size(); ++i) comparison.AddEqual(got[i], expected[i]);
}

struct NamedCodes {
  const char* name;
  ElementType type;
};
constexpr NamedCodes kCodes[] = {{"bf16", ElementType::kBF16},
                                 {"fp8", ElementType::kF8E4M3},
                                 {"int8", ElementType::kI8},
                                 {"int4", ElementType::kInt4},
                                 {"fp4", ElementType::kF4E2M1}};

}  // namespace

void CheckDummyWeights(CheckRun& run) {
  for (const NamedCodes& codes : kCodes) {
    for (const int64_t cols : {2, 8, 64, 96, 100, 4160}) {
      run.Case("random_codes", fmt::format("5 x {}, {}", cols, codes.name),
               [&](CaseMemory& memory, Comparison& comparison) {
                 CheckCodes(memory, comparison, codes.type, cols);
               });
    }
    if (codes.type != ElementType::kF8E4M3 && codes.type != ElementType::kI8) continue;
    run.Case("random_codes", fmt::format("16 x 1024, every valid code, {}", codes.name),
             [&](CaseMemory& memory, Comparison& comparison) {
               CheckEveryCode(memory, comparison, codes.type);
             });
  }
  run.Case("random_scales", "1000, e8m0", [](CaseMemory& memory, Comparison& comparison) {
    CheckConstantScales(memory, comparison, GroupScales::kE8M0);
  });
  run.Case("random_scales", "1000, blocks", [](CaseMemory& memory, Comparison& comparison) {
    CheckConstantScales(memory, comparison, GroupScales::kBlock);
  });
  run.Case("random_scales", "1000, with zeros", [](CaseMemory& memory, Comparison& comparison) {
    CheckConstantScales(memory, comparison, GroupScales::kWithZeros);
  });
  for (const int64_t groups : {6, 10}) {
    run.Case("random_scales", fmt::format("40 rows of {}, e4m3", groups),
             [&](CaseMemory& memory, Comparison& comparison) {
               CheckGroupScales(memory, comparison, 100, 40, groups);
             });
  }
}

}  // namespace sluice::checks
