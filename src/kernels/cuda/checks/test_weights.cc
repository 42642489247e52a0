#include "kernels/cuda/checks/test_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/cuda/checks/test_numbers.h"
#include "kernels/cuda/linear_shapes.h"
#include "kernels/cuda/nvf4_scales.h"
#include "tensor/float8.h"

namespace sluice::checks {
namespace {

using device::GroupScales;

constexpr WeightFormat kFormats[] = {
    {.name = "bf16", .type = ElementType::kBF16},
    {.name = "fp8", .type = ElementType::kF8E4M3, .has_row_scales = true},
    {.name = "fp8 x fp8",
     .type = ElementType::kF8E4M3,
     .has_row_scales = true,
     .e4m3_inputs = true},
    {.name = "block fp8",
     .type = ElementType::kF8E4M3,
     .group_type = GroupScales::kBlock,
     .group = 128,
     .block_rows = 128},
    {.name = "fp8 blocks of 8 x 32",
     .type = ElementType::kF8E4M3,
     .group_type = GroupScales::kBlock,
     .group = 32,
     .block_rows = 8,
     .is_only_checked = true},
    {.name = "int8", .type = ElementType::kI8, .has_row_scales = true},
    {.name = "int4",
     .type = ElementType::kInt4,
     .group_type = GroupScales::kWithZeros,
     .group = 128,
     .block_rows = 1},
    {.name = "int4 groups of 32",
     .type = ElementType::kInt4,
     .group_type = GroupScales::kWithZeros,
     .group = 32,
     .block_rows = 1,
     .is_only_checked = true},
    {.name = "nvfp4",
     .type = ElementType::kF4E2M1,
     .group_type = GroupScales::kE4M3,
     .group = 16,
     .has_row_scales = true},
    {.name = "nvfp4 x nvfp4",
     .type = ElementType::kF4E2M1,
     .group_type = GroupScales::kE4M3,
     .group = 16,
     .has_row_scales = true,
     .nvf4_inputs = true},
    {.name = "mxfp4", .type = ElementType::kF4E2M1, .group_type = GroupScales::kE8M0, .group = 32},
    {.name = "mxfp4 x mxfp4",
     .type = ElementType::kF4E2M1,
     .group_type = GroupScales::kE8M0,
     .group = 32,
     .mxf4_inputs = true},
};

float FreeScale(TestNumbers& numbers) {
  const float scale = numbers.Uniform(0.01f, 2);
  return numbers.Integer(0, 1) == 0 ? scale : -scale;
}

constexpr float kE2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

// Sets a table that maps random bytes to codes.
void CodeTable(ElementType type, NumberKind kind, uint8_t (&table)[256]) {
  for (int byte = 0; byte < 256; ++byte) {
    auto code = static_cast<uint8_t>(byte);
    const int integer = byte % 7 - 3;  // -3 to 3
    if (type == ElementType::kF8E4M3) {
      if (kind == NumberKind::kIntegers)
        code = ToFloat8E4M3(static_cast<float>(integer)).bits;
      else if ((byte & 0x7F) == 0x7F)
        code = 0;  // no NaN
    } else if (type == ElementType::kI8) {
      if (kind == NumberKind::kIntegers)
        code = static_cast<uint8_t>(static_cast<int8_t>(integer));
      else if (byte == 0x80)
        code = 0;  // -128 is not used as a code
    } else if (type == ElementType::kInt4 && kind == NumberKind::kIntegers) {
      code &= 0x77;  // 0 to 7: small integers after subtracting zero points of 3 to 5
    }
    table[byte] = code;
  }
}

}  // namespace

double WeightFormat::bits_per_weight() const {
  const double code_bits = device::LinearCodeBits(type);
  if (group_type == GroupScales::kWithZeros) return code_bits + 32.0 / group;
  if (group_type == GroupScales::kE4M3 || group_type == GroupScales::kE8M0)
    return code_bits + 8.0 / group;
  return code_bits;
}

std::span<const WeightFormat> WeightFormats() {
  return kFormats;
}

const char* NumberKindName(NumberKind kind) {
  return kind == NumberKind::kIntegers ? "integers" : "free";
}

TestWeights::TestWeights(const WeightFormat& format, NumberKind kind, int64_t experts, int64_t n,
                         int64_t k)
    : format_(format), experts_(experts), n_(n), k_(k) {
  TestNumbers numbers(61);
  const bool is_exact = kind == NumberKind::kIntegers;
  codes_.resize(static_cast<size_t>(experts * codes_stride()));
  if (format.type == ElementType::kBF16) {
    TestNumbers::Table<uint16_t> table;
    for (uint16_t& bits : table) {
      const float value = is_exact ? static_cast<float>(numbers.Integer(-3, 3)) : numbers.Normal();
      bits = ToBFloat16(value).bits;
    }
    std::vector<uint16_t> row(static_cast<size_t>(k));
    for (int64_t i = 0; i < experts * n; ++i) {
      numbers.FillFrom(table, row.data(), k);
      std::memcpy(codes_.data() + 2 * i * k, row.data(), row.size() * 2);
    }
  } else {
    uint8_t table[256];
    CodeTable(format.type, kind, table);
    numbers.Fill(codes_.data(), static_cast<int64_t>(codes_.size()), table);
  }
  const int64_t groups = experts * group_scales_stride();
  if (format.group_type == GroupScales::kBlock) {
    block_scales_.resize(static_cast<size_t>(groups / 4));
    for (float& scale : block_scales_)
      scale = is_exact ? numbers.PowerOfTwo(-1, 1) : FreeScale(numbers);
  } else if (format.group_type == GroupScales::kWithZeros) {
    words_.resize(static_cast<size_t>(groups / 4));
    for (uint32_t& word : words_) {
      const float scale = is_exact ? numbers.PowerOfTwo(-1, 1) : FreeScale(numbers);
      const int64_t zero = is_exact ? numbers.Integer(3, 5) : numbers.Integer(0, 15);
      word = device::Int4ScaleWord(scale, static_cast<int>(zero));
    }
  } else if (format.group_type != GroupScales::kNone) {
    group_bytes_.resize(static_cast<size_t>(groups));  // zeros, also in the padding
    const bool is_e4m3 = format.group_type == GroupScales::kE4M3;
    for (int64_t i = 0; i < experts * n * GroupsOfRow(); ++i) {
      const int64_t row = i / GroupsOfRow();
      uint8_t& scale = group_bytes_[GroupByteAt(row / n, row % n, i % GroupsOfRow())];
      if (!is_e4m3)
        scale =
            static_cast<uint8_t>(is_exact ? numbers.Integer(126, 128) : numbers.Integer(110, 140));
      else  // codes of 0.5, 1 and 2; or any code except NaN
        scale = static_cast<uint8_t>(is_exact ? 0x30 + 8 * numbers.Integer(0, 2)
                                              : numbers.Integer(0, 0x7E));
    }
  }
  if (format.has_row_scales) {
    row_scales_.resize(static_cast<size_t>(experts * n));
    for (float& scale : row_scales_)
      scale = is_exact ? numbers.PowerOfTwo(-2, 2) : FreeScale(numbers);
  }
}

int64_t TestWeights::codes_stride() const {
  return n_ * k_ * device::LinearCodeBits(format_.type) / 8;
}

int64_t TestWeights::GroupsOfRow() const {
  return format_.group > 0 ? (k_ + format_.group - 1) / format_.group : 0;
}

int64_t TestWeights::group_scales_stride() const {
  if (format_.group_type == GroupScales::kNone) return 0;
  if (format_.group_type == GroupScales::kBlock || format_.group_type == GroupScales::kWithZeros)
    return (n_ + format_.block_rows - 1) / format_.block_rows * GroupsOfRow() * 4;
  if (format_.group_type == GroupScales::kE4M3) return device::NvF4ScaleBytes(n_, GroupsOfRow());
  return n_ * GroupsOfRow();
}

int64_t TestWeights::scaled_sums() const {
  const bool is_block = format_.group_type == GroupScales::kBlock;
  return is_block || format_.group_type == GroupScales::kWithZeros ? GroupsOfRow() : 0;
}

device::Weights TestWeights::Upload(CaseMemory& memory) const {
  device::Weights w{};
  w.codes = memory.In(codes_);
  w.type = format_.type;
  w.group_type = format_.group_type;
  w.group = format_.group;
  w.block_rows = format_.block_rows;
  if (!block_scales_.empty()) w.group_scales = memory.In(block_scales_);
  if (!words_.empty()) w.group_scales = memory.In(words_);
  if (!group_bytes_.empty()) w.group_scales = memory.In(group_bytes_);
  if (!row_scales_.empty()) w.row_scales = memory.In(row_scales_);
  w.n = n_;
  w.k = k_;
  return w;
}

size_t TestWeights::GroupByteAt(int64_t expert, int64_t row, int64_t group) const {
  const int64_t groups = GroupsOfRow();
  const int64_t in_matrix = format_.group_type == GroupScales::kE4M3
                                ? device::NvF4ScaleRow(row, groups) + device::NvF4ScaleGroup(group)
                                : row * groups + group;
  return static_cast<size_t>(expert * group_scales_stride() + in_matrix);
}

size_t TestWeights::WordAt(int64_t expert, int64_t row, int64_t group) const {
  return static_cast<size_t>((expert * n_ + row) * GroupsOfRow() + group);
}

double TestWeights::GroupScale(int64_t expert, int64_t row, int64_t group) const {
  const int64_t groups = GroupsOfRow();
  switch (format_.group_type) {
    case GroupScales::kNone: return 1;
    case GroupScales::kBlock:
      return block_scales_[static_cast<size_t>(expert * group_scales_stride() / 4 +
                                               row / format_.block_rows * groups + group)];
    case GroupScales::kE4M3:
      return ToFloat(Float8E4M3{group_bytes_[GroupByteAt(expert, row, group)]});
    case GroupScales::kWithZeros:
      return std::bit_cast<float>(words_[WordAt(expert, row, group)] & ~device::kInt4ZeroMask);
    case GroupScales::kE8M0:
      if (group_bytes_[GroupByteAt(expert, row, group)] == 0xFF) return NAN;
      return std::ldexp(1.0, group_bytes_[GroupByteAt(expert, row, group)] - 127);
  }
  return 1;
}

void TestWeights::SetRowScales(float scale) {
  SetRowScales(scale, std::ssize(row_scales_));
}

void TestWeights::SetRowScales(float scale, int64_t rows) {
  std::fill_n(row_scales_.begin(), rows, scale);
}

void TestWeights::SetNan(int64_t row, int64_t k) {
  const auto at = static_cast<size_t>(row * k_ + k);
  switch (format_.type) {
    case ElementType::kBF16: codes_[2 * at + 1] = 0x7F, codes_[2 * at] = 0xC0; break;
    case ElementType::kF8E4M3: codes_[at] = row % 2 == 0 ? 0x7F : 0xFF; break;
    case ElementType::kI8: break;  // no code or scale of these formats is NaN
    case ElementType::kInt4:
      words_[WordAt(0, row, k / format_.group)] = device::Int4ScaleWord(NAN, 7);
      break;
    default:
      group_bytes_[GroupByteAt(0, row, k / format_.group)] =
          format_.group_type == GroupScales::kE4M3 && row % 2 == 0 ? 0x7F : 0xFF;
  }
}

void TestWeights::DecodeRow(int64_t expert, int64_t row, std::vector<double>& out) const {
  out.resize(static_cast<size_t>(k_));
  const uint8_t* codes = codes_.data() + expert * codes_stride() + row * (codes_stride() / n_);
  for (int64_t k = 0; k < k_; ++k) {
    double value = 0;
    switch (format_.type) {
      case ElementType::kBF16: {
        uint16_t bits;
        std::memcpy(&bits, codes + 2 * k, 2);
        value = FromBf16Bits(bits);
        break;
      }
      case ElementType::kF8E4M3: value = ToFloat(Float8E4M3{codes[k]}); break;
      case ElementType::kI8: value = static_cast<int8_t>(codes[k]); break;
      case ElementType::kInt4: {
        const uint32_t word = words_[WordAt(expert, row, k / format_.group)];
        value = (codes[k / 2] >> (k % 2 * 4) & 15) - static_cast<int>(word & device::kInt4ZeroMask);
        break;
      }
      default: {
        const int code = codes[k / 2] >> (k % 2 * 4) & 15;
        value = (code & 8) != 0 ? -kE2m1[code & 7] : kE2m1[code & 7];
        break;
      }
    }
    out[static_cast<size_t>(k)] = value;
  }
  if (format_.group_type == GroupScales::kNone) return;
  for (int64_t group = 0; group < GroupsOfRow(); ++group) {
    const double scale = GroupScale(expert, row, group);
    for (int64_t k = group * format_.group; k < std::min(k_, (group + 1) * format_.group); ++k)
      out[static_cast<size_t>(k)] *= scale;
  }
}

double TestWeights::RowScale(int64_t expert, int64_t row) const {
  return row_scales_.empty() ? 1 : row_scales_[static_cast<size_t>(expert * n_ + row)];
}

TestInputs MakeInputs(CaseMemory& memory, const WeightFormat& format, NumberKind kind, int64_t m,
                      int64_t k, float same_scale) {
  TestNumbers numbers(62);
  TestInputs inputs;
  inputs.is_mxf4 = format.mxf4_inputs;
  inputs.values.resize(static_cast<size_t>(m * k));
  if (format.e4m3_inputs) {
    inputs.type = ElementType::kF8E4M3;
    std::vector<uint8_t> codes(static_cast<size_t>(m * k));
    for (size_t i = 0; i < codes.size(); ++i) {
      const float value = kind == NumberKind::kIntegers ? static_cast<float>(numbers.Integer(-1, 1))
                                                        : numbers.Normal() * 100;
      codes[i] = ToFloat8E4M3(value).bits;
      inputs.values[i] = ToFloat(Float8E4M3{codes[i]});
    }
    inputs.data = memory.In(codes);
  } else {
    std::vector<uint16_t> bits(static_cast<size_t>(m * k));
    float group_scale = 1;
    for (size_t i = 0; i < bits.size(); ++i) {
      float value = kind == NumberKind::kIntegers ? static_cast<float>(numbers.Integer(-2, 2))
                                                  : numbers.Normal();
      if (format.nvf4_inputs) {
        // Numbers of a group are codes times the group's scale. One code is 6, so that rounding
        // recovers the scale exactly.
        if (i % 16 == 0 && kind == NumberKind::kFree)
          group_scale = ToFloat(Float8E4M3{static_cast<uint8_t>(numbers.Integer(0x20, 0x48))});
        const auto code =
            kind == NumberKind::kIntegers ? numbers.Integer(2, 4) : numbers.Integer(0, 7);
        value = kE2m1[i / 16 % 16 == i % 16 ? 7 : code] * group_scale;
        if (numbers.Integer(0, 1) == 0) value = -value;
      }
      if (format.mxf4_inputs) {
        // As above. One code is 4 or 6, so that the scale is the one that rounding finds.
        if (i % 32 == 0 && kind == NumberKind::kFree) group_scale = numbers.PowerOfTwo(-4, 3);
        const auto code =
            kind == NumberKind::kIntegers ? numbers.Integer(2, 4) : numbers.Integer(0, 7);
        value = kE2m1[i / 32 % 32 == i % 32 ? 6 + code % 2 : code] * group_scale;
        if (numbers.Integer(0, 1) == 0) value = -value;
      }
      bits[i] = ToBFloat16(value).bits;
      inputs.values[i] = FromBf16Bits(bits[i]);
    }
    inputs.data = memory.In(bits);
  }
  if (format.e4m3_inputs || format.nvf4_inputs) {
    for (int64_t row = 0; row < m; ++row) {
      const float own =
          kind == NumberKind::kIntegers ? numbers.PowerOfTwo(-2, 2) : FreeScale(numbers);
      inputs.scales.push_back(same_scale != 0 ? same_scale : own);
    }
    inputs.device_scales = memory.In(inputs.scales);
  }
  return inputs;
}

}  // namespace sluice::checks
