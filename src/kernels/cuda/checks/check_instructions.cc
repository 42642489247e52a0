// Checks the instructions of device_code.h; all other checks depend on them.
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <type_traits>

#include <fmt/format.h>

#include "kernels/cuda/checks/check_run.h"
#include "kernels/cuda/checks/test_numbers.h"
#include "kernels/cuda/checks/tolerances.h"
#include "tensor/float16.h"
#include "tensor/float4.h"

namespace sluice::checks {
namespace {

using device::Instruction;
using device::InstructionArgs;

void Launch(CheckRun& run, Instruction instruction, const void* a, const void* b, int64_t count,
            void* out) {
  run.device().kernels().instruction(run.device().handle(),
                                     InstructionArgs{instruction, a, b, count, out});
}

// Computes d = the sum over the tiles of a b. Tiles [16, depth] and [depth, 8] are consecutive.
template <Instruction kInstruction>
Status CheckTiles(CheckRun& run, CaseMemory& memory, Comparison& comparison, bool is_exact) {
  constexpr bool kIsE4m3 = kInstruction == Instruction::kMmaE4m3;
  constexpr bool kIsF16 = kInstruction == Instruction::kMmaF16;
  using T = std::conditional_t<kIsE4m3, uint8_t, uint16_t>;
  constexpr int kDepth = kIsE4m3 ? 32 : 16;
  constexpr int kTiles = 8;
  TestNumbers numbers(1);
  const auto encode = [](float value) {
    return static_cast<T>(kIsE4m3  ? ToFloat8E4M3(value).bits
                          : kIsF16 ? ToFloat16(value).bits
                                   : ToBFloat16(value).bits);
  };
  const auto decode = [](T code) -> double {
    if constexpr (kIsE4m3) return ToFloat(Float8E4M3{code});
    if constexpr (kIsF16) return HalfToFloat(code);
    return FromBf16Bits(code);
  };
  std::vector<T> a(kTiles * 16 * kDepth), b(kTiles * kDepth * 8);
  for (auto* values : {&a, &b}) {
    for (T& value : *values)
      value = encode(is_exact ? static_cast<float>(numbers.Integer(-3, 3)) : numbers.Normal());
  }
  const T* device_a = memory.In(a);
  const T* device_b = memory.In(b);
  float* d = memory.Out<float>(128);
  if (!memory.ok()) return memory.status();
  Launch(run, kInstruction, device_a, device_b, kTiles, d);
  const std::vector<float> got = memory.Read(d, 128);
  if (!memory.ok()) return memory.status();
  const double relative = is_exact ? 0 : ProductError(run.device(), kTiles * kDepth, kIsE4m3);
  for (size_t row = 0; row < 16; ++row) {
    for (size_t col = 0; col < 8; ++col) {
      double sum = 0, size = 0;
      for (size_t k = 0; k < kTiles * kDepth; ++k) {
        const size_t tile = k / kDepth, inner = k % kDepth;
        const double product = decode(a[(tile * 16 + row) * kDepth + inner]) *
                               decode(b[(tile * kDepth + inner) * 8 + col]);
        sum += product;
        size += std::abs(product);
      }
      comparison.AddF32(got[row * 8 + col], sum, relative * size);
    }
  }
  return {};
}

Status CheckLoadMatrix(CheckRun& run, CaseMemory& memory, Comparison& comparison) {
  std::vector<uint16_t> matrices(256);
  for (size_t i = 0; i < 256; ++i) matrices[i] = static_cast<uint16_t>(i * 257);
  const uint16_t* in = memory.In(matrices);
  uint32_t* out = memory.Out<uint32_t>(256);
  if (!memory.ok()) return memory.status();
  Launch(run, Instruction::kLoadMatrix, in, nullptr, 0, out);
  const std::vector<uint32_t> got = memory.Read(out, 256);
  if (!memory.ok()) return memory.status();
  for (uint32_t transposed = 0; transposed < 2; ++transposed) {
    for (uint32_t lane = 0; lane < 32; ++lane) {
      for (uint32_t m = 0; m < 4; ++m) {
        uint32_t expected = 0;
        for (uint32_t half = 0; half < 2; ++half) {
          const uint32_t along = 2 * (lane % 4) + half, across = lane / 4;
          const uint32_t row = transposed != 0 ? along : across;
          const uint32_t col = transposed != 0 ? across : along;
          expected |= uint32_t{matrices[m * 64 + row * 8 + col]} << (16 * half);
        }
        comparison.AddEqual(got[transposed * 128 + lane * 4 + m], expected);
      }
    }
  }
  return {};
}

Status CheckAsyncCopy(CheckRun& run, CaseMemory& memory, Comparison& comparison) {
  constexpr int64_t kSteps = 5, kPieces = kSteps * 128;
  TestNumbers numbers(2);
  std::vector<uint32_t> from(kPieces * 4);
  for (uint32_t& word : from) word = static_cast<uint32_t>(numbers.Bits());
  std::vector<uint8_t> is_valid(kPieces);
  for (uint8_t& valid : is_valid) valid = numbers.Integer(0, 3) != 0;
  const uint32_t* in = memory.In(from);
  const uint8_t* valid = memory.In(is_valid);
  uint32_t* out = memory.Out<uint32_t>(kPieces * 4);
  if (!memory.ok()) return memory.status();
  Launch(run, Instruction::kAsyncCopy, in, valid, kSteps, out);
  const std::vector<uint32_t> got = memory.Read(out, kPieces * 4);
  if (!memory.ok()) return memory.status();
  for (size_t i = 0; i < got.size(); ++i)
    comparison.AddEqual(got[i], is_valid[i / 4] != 0 ? from[i] : 0);
  return {};
}

// Compares bits, except that any NaN equals any NaN.
void CompareBits(Comparison& comparison, float got, float expected) {
  if (std::isnan(expected)) {
    comparison.AddEqual(std::isnan(got), 1);
  } else {
    comparison.AddEqual(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(expected));
  }
}

Status CheckDecode(CheckRun& run, CaseMemory& memory, Comparison& comparison) {
  constexpr int64_t kBf16 = 65536, kCount = kBf16 + 256 + 256 + 16;
  float* out = memory.Out<float>(kCount);
  if (!memory.ok()) return memory.status();
  Launch(run, Instruction::kDecode, nullptr, nullptr, 0, out);
  const std::vector<float> got = memory.Read(out, kCount);
  if (!memory.ok()) return memory.status();
  for (size_t code = 0; code < kBf16; ++code)
    CompareBits(comparison, got[code], FromBf16Bits(static_cast<uint16_t>(code)));
  for (size_t code = 0; code < 256; ++code) {
    CompareBits(comparison, got[kBf16 + code], ToFloat(Float8E4M3{static_cast<uint8_t>(code)}));
    CompareBits(comparison, got[kBf16 + 256 + code],
                code == 255 ? std::numeric_limits<float>::quiet_NaN()
                            : std::ldexp(1.0f, static_cast<int>(code) - 127));
  }
  constexpr float kE2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (size_t code = 0; code < 16; ++code)
    CompareBits(comparison, got[kBf16 + 512 + code],
                (code & 8) != 0 ? -kE2m1[code & 7] : kE2m1[code & 7]);
  return {};
}

// Returns every value of the narrow types, the ties between adjacent values, and the F32 numbers
// next to both.
std::vector<float> BorderNumbers() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> values = {0.0f,      -0.0f,  kInfinity, -kInfinity,     std::nanf(""),
                               0x1p-149f, 448.0f, 464.0f,    0x1.fffffep127f};
  const auto add = [&](float value) {
    for (const float near :
         {value, std::nextafter(value, -kInfinity), std::nextafter(value, kInfinity)}) {
      values.push_back(near);
      values.push_back(-near);
    }
  };
  for (int code = 0; code < 0x7E; ++code) {
    const float low = ToFloat(Float8E4M3{static_cast<uint8_t>(code)});
    const float high = ToFloat(Float8E4M3{static_cast<uint8_t>(code + 1)});
    add(low);
    add((low + high) / 2);
  }
  for (uint32_t bits = 0; bits < 0x7F80; bits += 37) {
    add(std::bit_cast<float>(bits << 16));
    add(std::bit_cast<float>(bits << 16 | 0x8000));
  }
  return values;
}

Status CheckEncode(CheckRun& run, CaseMemory& memory, Comparison& comparison) {
  const std::vector<float> values = BorderNumbers();
  const auto count = static_cast<int64_t>(values.size());
  const float* in = memory.In(values);
  uint32_t* out = memory.Out<uint32_t>(count);
  if (!memory.ok()) return memory.status();
  Launch(run, Instruction::kEncode, in, nullptr, count, out);
  const std::vector<uint32_t> got = memory.Read(out, count);
  if (!memory.ok()) return memory.status();
  for (size_t i = 0; i < values.size(); ++i) {
    comparison.AddEqual(got[i] & 0xFFFF, ToBFloat16(values[i]).bits);
    comparison.AddEqual(got[i] >> 16 & 0xFFu, ToFloat8E4M3(values[i]).bits);
    comparison.AddEqual(got[i] >> 24, ToFloat8E4M3(values[i]).bits);
  }
  return {};
}

// Returns a number rounded to F16, including infinities, which ToFloat16 does not produce.
float RoundedToF16(float value) {
  if (std::abs(value) >= 65520) return std::copysign(std::numeric_limits<float>::infinity(), value);
  return HalfToFloat(ToFloat16(value).bits);
}

// Compares numbers, not bits, because the bits of a NaN are unspecified.
void CompareHalves(Comparison& comparison, uint32_t got, float low, float high) {
  CompareBits(comparison, HalfToFloat(static_cast<uint16_t>(got)), RoundedToF16(low));
  CompareBits(comparison, HalfToFloat(static_cast<uint16_t>(got >> 16)), RoundedToF16(high));
}

Status CheckHalves(CheckRun& run, CaseMemory& memory, Comparison& comparison) {
  std::vector<float> values = BorderNumbers();
  for (int i = 0; i < 0x7C00; i += 13) {  // ties of F16 and the numbers next to them
    const float low = HalfToFloat(static_cast<uint16_t>(i));
    const float high = HalfToFloat(static_cast<uint16_t>(i + 1));
    const float tie = std::isinf(high) ? 65520.0f : (low + high) / 2;
    for (const float towards : {0.0f, tie, 1e9f}) values.push_back(std::nextafter(tie, towards));
  }
  const auto count = static_cast<int64_t>(values.size());
  const float* in = memory.In(values);
  uint32_t* out = memory.Out<uint32_t>(count + 256);
  if (!memory.ok()) return memory.status();
  Launch(run, Instruction::kHalves, in, nullptr, count, out);
  const std::vector<uint32_t> got = memory.Read(out, count + 256);
  if (!memory.ok()) return memory.status();
  for (size_t i = 0; i < values.size(); ++i)
    CompareHalves(comparison, got[i], values[i], values[values.size() - 1 - i]);
  for (size_t pair = 0; pair < 128; ++pair) {
    const auto number = [pair](size_t i) {
      return ToFloat(Float8E4M3{static_cast<uint8_t>(2 * pair + i)});
    };
    CompareHalves(comparison, got[values.size() + pair], number(0), number(1));
    const uint32_t bf16 = got[values.size() + 128 + pair];
    CompareBits(comparison, FromBf16Bits(static_cast<uint16_t>(bf16)), number(0));
    CompareBits(comparison, FromBf16Bits(static_cast<uint16_t>(bf16 >> 16)), number(1));
  }
  return {};
}

Status CheckWarp(CheckRun& run, CaseMemory& memory, Comparison& comparison) {
  TestNumbers numbers(3);
  const std::vector<float> values = numbers.Integers(32, 100);
  const float* in = memory.In(values);
  float* out = memory.Out<float>(128);
  if (!memory.ok()) return memory.status();
  Launch(run, Instruction::kWarp, in, nullptr, 0, out);
  const std::vector<float> got = memory.Read(out, 128);
  if (!memory.ok()) return memory.status();
  float sum = 0, largest = values[0];
  int positive = 0;
  for (const float value : values) {
    sum += value;
    largest = std::max(largest, value);
    positive += value > 0;
  }
  for (size_t lane = 0; lane < 32; ++lane) {
    comparison.AddF32(got[lane], sum, 0);
    comparison.AddF32(got[32 + lane], largest, 0);
    comparison.AddF32(got[64 + lane], values[(lane + 31) % 32], 0);
    comparison.AddF32(got[96 + lane], positive, 0);
  }
  return {};
}

struct MathFunction {
  const char* name;
  double (*exact)(double);
};

Status CheckMath(CheckRun& run, CaseMemory& memory, Comparison& comparison, size_t index,
                 const MathFunction& function) {
  TestNumbers numbers(4);
  std::vector<float> values;
  for (int i = 0; i < 2000; ++i) values.push_back(numbers.Uniform(-80, 80));
  for (int i = 0; i < 2000; ++i) values.push_back(numbers.Uniform(-1, 1));
  for (float& value : values) value = value == 0 ? 1 : value;
  const auto count = static_cast<int64_t>(values.size());
  const float* in = memory.In(values);
  float* out = memory.Out<float>(6 * count);
  if (!memory.ok()) return memory.status();
  Launch(run, Instruction::kMath, in, nullptr, count, out);
  const std::vector<float> got = memory.Read(out, 6 * count);
  if (!memory.ok()) return memory.status();
  for (size_t i = 0; i < values.size(); ++i) {
    const double expected = function.exact(static_cast<double>(values[i]));
    comparison.AddWithin(got[index * values.size() + i], expected, MathError(expected));
  }
  return {};
}

constexpr MathFunction kMathFunctions[] = {
    {"expf", [](double x) { return std::exp(x); }},
    {"rsqrtf", [](double x) { return 1 / std::sqrt(std::abs(x)); }},
    {"sinf", [](double x) { return std::sin(x); }},
    {"cosf", [](double x) { return std::cos(x); }},
    {"log1pf", [](double x) { return std::log1p(std::abs(x)); }},
    {"division", [](double x) { return 1 / x; }},
};

}  // namespace

void CheckInstructions(CheckRun& run) {
  const auto simple = [&](const char* name, const char* shape,
                          Status (*check)(CheckRun&, CaseMemory&, Comparison&)) {
    run.Case(name, shape, [&](CaseMemory& memory, Comparison& comparison) {
      return check(run, memory, comparison);
    });
  };
  simple("decode", "every code of BF16, E4M3, E8M0, E2M1", CheckDecode);
  simple("encode", "numbers, ties and their neighbours", CheckEncode);
  simple("halves", "F16 of numbers and their neighbours; every code of E4M3 as F16 and BF16",
         CheckHalves);
  simple("ldmatrix", "4 of 8 x 8, plain and transposed", CheckLoadMatrix);
  simple("cp.async", "2 stages, with zeros for invalid pieces", CheckAsyncCopy);
  simple("warp", "sum, largest, shuffle, ballot", CheckWarp);
  for (const bool is_exact : {true, false}) {
    const char* data = is_exact ? "integers" : "normal";
    run.Case("mma bf16", fmt::format("16 x 128 x 8, {}", data),
             [&](CaseMemory& memory, Comparison& comparison) {
               return CheckTiles<Instruction::kMmaBf16>(run, memory, comparison, is_exact);
             });
    run.Case("mma f16", fmt::format("16 x 128 x 8, {}", data),
             [&](CaseMemory& memory, Comparison& comparison) {
               return CheckTiles<Instruction::kMmaF16>(run, memory, comparison, is_exact);
             });
    if (!run.device().has_e4m3_products()) {
      run.Skip("mma e4m3", "16 x 256 x 8", "needs compute capability 8.9");
      continue;
    }
    run.Case("mma e4m3", fmt::format("16 x 256 x 8, {}", data),
             [&](CaseMemory& memory, Comparison& comparison) {
               return CheckTiles<Instruction::kMmaE4m3>(run, memory, comparison, is_exact);
             });
  }
  for (size_t i = 0; i < std::size(kMathFunctions); ++i) {
    run.Case(kMathFunctions[i].name, "4000 numbers",
             [&](CaseMemory& memory, Comparison& comparison) {
               return CheckMath(run, memory, comparison, i, kMathFunctions[i]);
             });
  }
}

}  // namespace sluice::checks
