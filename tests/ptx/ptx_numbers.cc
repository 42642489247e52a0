#include "ptx_numbers.h"

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>

namespace sluice::ptx {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Decodes a number of 1 sign bit, `exponent_bits` and `fraction_bits`, in the encoding of IEEE 754.
double Decode(uint32_t code, int exponent_bits, int fraction_bits) {
  const uint32_t fraction = code & ((1u << fraction_bits) - 1);
  const uint32_t exponent = code >> fraction_bits & ((1u << exponent_bits) - 1);
  const bool is_negative = code >> (exponent_bits + fraction_bits) != 0;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  double value;
  if (exponent == (1u << exponent_bits) - 1) {
    value = fraction == 0 ? kInfinity : kNan;
  } else if (exponent == 0) {
    value = std::ldexp(fraction, 1 - bias - fraction_bits);
  } else {
    value = std::ldexp(fraction + (1u << fraction_bits),
                       static_cast<int>(exponent) - bias - fraction_bits);
  }
  return is_negative ? -value : value;
}

uint16_t Encode(double value, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (std::isnan(value)) return 0x7FFF;
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const auto infinity = static_cast<uint16_t>(((1 << exponent_bits) - 1) << fraction_bits);
  const double magnitude = std::fabs(value);
  if (magnitude == kInfinity) return sign | infinity;
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), 1 - bias);
  // The magnitude in units of the last place; nearbyint rounds to even.
  const auto units =
      static_cast<int64_t>(std::nearbyint(std::ldexp(magnitude, fraction_bits - exponent)));
  const int64_t code = (int64_t{exponent + bias - 1} << fraction_bits) + units;
  return sign | static_cast<uint16_t>(std::min<int64_t>(code, infinity));
}

// Sets another rounding mode than round to nearest, until its destructor.
class RoundingMode {
 public:
  explicit RoundingMode(Rounding rounding) {
    fesetround(rounding == Rounding::kDown   ? FE_DOWNWARD
               : rounding == Rounding::kZero ? FE_TOWARDZERO
                                             : FE_TONEAREST);
  }
  ~RoundingMode() { fesetround(FE_TONEAREST); }
};

[[noreturn]] void Unknown(const Instruction& instruction) {
  fprintf(stderr, "line %d: an instruction of this type is not implemented\n", instruction.line);
  exit(1);
}

float MaxOf(float a, float b) {
  return std::isnan(a) ? b : std::isnan(b) ? a : a > b || (a == b && std::signbit(b)) ? a : b;
}

float F32Arithmetic(const Instruction& in, float a, float b, float c) {
  const RoundingMode mode(in.rounding);
  // Volatile, so that the operation is computed here, in this mode.
  const volatile float x = a, y = b;
  switch (in.op) {
    case Op::kAdd: return x + y;
    case Op::kSub: return x - y;
    case Op::kMul: return x * y;
    case Op::kDiv: return x / y;
    case Op::kFma: return std::fma(x, y, c);
    case Op::kMax: return MaxOf(a, b);
    case Op::kMin: return -MaxOf(-a, -b);
    case Op::kRcp: return 1.0f / x;
    case Op::kSqrt: return std::sqrt(a);
    case Op::kRsqrt: return static_cast<float>(1.0 / std::sqrt(static_cast<double>(a)));
    case Op::kEx2: {
      constexpr float kLeast = std::numeric_limits<float>::min();
      const float result = std::exp2(in.flushes && std::fabs(a) < kLeast ? 0.0f : a);
      return in.flushes && result < kLeast ? 0.0f : result;
    }
    default: Unknown(in);
  }
}

double F64Arithmetic(const Instruction& in, double a, double b) {
  switch (in.op) {
    case Op::kAdd: return a + b;
    case Op::kSub: return a - b;
    case Op::kMul: return a * b;
    case Op::kDiv: return a / b;
    default: Unknown(in);
  }
}

uint64_t HalvesArithmetic(const Instruction& in, uint64_t a, uint64_t b, uint64_t c) {
  uint64_t result = 0;
  for (int shift = 0; shift < 32; shift += 16) {
    const auto half = [&](uint64_t bits) {
      const auto code = static_cast<uint16_t>(bits >> shift);
      return in.type == Type::kF16x2 ? F16ToDouble(code) : Bf16ToDouble(code);
    };
    // Products are exact. Sums lose only bits that cannot affect the rounding to 8 bits.
    double value = half(a) * half(b);
    if (in.op == Op::kFma)
      value += half(c);
    else if (in.op != Op::kMul)
      Unknown(in);
    result |= uint64_t{in.type == Type::kF16x2 ? DoubleToF16(value) : DoubleToBf16(value)} << shift;
  }
  return result;
}

uint64_t ReversedBits(uint64_t bits) {
  uint64_t result = 0;
  for (int i = 0; i < 32; ++i) result |= (bits >> i & 1) << (31 - i);
  return result;
}

uint64_t IntegerArithmetic(const Instruction& in, uint64_t a, uint64_t b, uint64_t c) {
  const int width = BitsOfType(in.type);
  const bool is_signed = IsSigned(in.type);
  const int64_t sa = SignedOf(a, width), sb = SignedOf(b, width);
  const auto extended = [&](uint64_t bits, int64_t value) {
    return is_signed ? static_cast<uint64_t>(value) : bits;
  };
  switch (in.op) {
    case Op::kAdd: return a + b;
    case Op::kSub: return a - b;
    case Op::kMul:
      if (in.is_high) Unknown(in);
      return extended(a, sa) * extended(b, sb);
    case Op::kMad:
      if (in.is_high) Unknown(in);
      return extended(a, sa) * extended(b, sb) + c;
    case Op::kDiv:
      if (b == 0) return ~uint64_t{0};
      return is_signed ? static_cast<uint64_t>(sa / sb) : a / b;
    case Op::kRem:
      if (b == 0) return a;
      return is_signed ? static_cast<uint64_t>(sa % sb) : a % b;
    case Op::kMax: return is_signed ? static_cast<uint64_t>(std::max(sa, sb)) : std::max(a, b);
    case Op::kMin: return is_signed ? static_cast<uint64_t>(std::min(sa, sb)) : std::min(a, b);
    case Op::kNeg: return uint64_t{0} - a;
    case Op::kAbs: return static_cast<uint64_t>(sa < 0 ? -sa : sa);
    case Op::kAnd: return a & b;
    case Op::kOr: return a | b;
    case Op::kXor: return a ^ b;
    case Op::kNot: return in.type == Type::kPred ? uint64_t{a == 0} : ~a;
    case Op::kShl: return b >= static_cast<uint64_t>(width) ? 0 : a << b;
    case Op::kShr: {
      const uint64_t by =
          std::min<uint64_t>(b, static_cast<uint64_t>(is_signed ? width - 1 : width));
      if (is_signed) return static_cast<uint64_t>(sa >> by);
      return by >= 64 ? 0 : a >> by;
    }
    case Op::kBrev: return ReversedBits(a);
    case Op::kPopc: return static_cast<uint64_t>(std::popcount(a));
    case Op::kBfind: {
      if (a == 0) return 0xFFFFFFFF;
      const int highest = 63 - std::countl_zero(a);
      return static_cast<uint64_t>(in.shifts_amount ? width - 1 - highest : highest);
    }
    default: Unknown(in);
  }
}

// Rounds to nearest, ties to even; numbers beyond 448 become 448. NaN has no sign.
uint64_t DoubleToE4m3(double value) {
  if (std::isnan(value)) return 0x7F;
  const uint64_t sign = std::signbit(value) ? 0x80 : 0;
  const double magnitude = std::min(std::fabs(value), 448.0);
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), -6);
  const auto units = static_cast<uint64_t>(std::nearbyint(std::ldexp(magnitude, 3 - exponent)));
  return sign | ((static_cast<uint64_t>(exponent + 6) << 3) + units);
}

uint64_t ToInteger(const Instruction& in, double value) {
  const int width = BitsOfType(in.type);
  if (std::isnan(value)) return 0;
  const double whole = in.rounding == Rounding::kZero   ? std::trunc(value)
                       : in.rounding == Rounding::kDown ? std::floor(value)
                                                        : std::nearbyint(value);
  if (IsSigned(in.type)) {
    const double most = std::ldexp(1.0, width - 1);
    if (whole >= most) return (uint64_t{1} << (width - 1)) - 1;
    if (whole < -most) return uint64_t{1} << (width - 1);
    return static_cast<uint64_t>(static_cast<int64_t>(whole));
  }
  if (whole <= 0) return 0;
  if (whole >= std::ldexp(1.0, width)) return ~uint64_t{0};
  return static_cast<uint64_t>(whole);
}

bool IsFloat(Type type) {
  return type == Type::kF16 || type == Type::kF32 || type == Type::kF64;
}

}  // namespace

double F16ToDouble(uint16_t code) {
  return Decode(code, 5, 10);
}
double Bf16ToDouble(uint16_t code) {
  return Decode(code, 8, 7);
}
// There is no infinity: the highest exponent encodes numbers, except in the last code.
double E4m3ToDouble(uint8_t code) {
  if ((code & 0x7F) == 0x7F) return kNan;
  const int exponent = code >> 3 & 15, fraction = code & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}
uint16_t DoubleToF16(double value) {
  return Encode(value, 5, 10);
}
uint16_t DoubleToBf16(double value) {
  return Encode(value, 8, 7);
}

uint64_t BitsOfF32(float value) {
  return std::isnan(value) ? 0x7FFFFFFF : std::bit_cast<uint32_t>(value);
}
uint64_t BitsOfF64(double value) {
  return std::isnan(value) ? 0x7FFFFFFFFFFFFFFF : std::bit_cast<uint64_t>(value);
}
float F32Of(uint64_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits));
}
double F64Of(uint64_t bits) {
  return std::bit_cast<double>(bits);
}

uint64_t Arithmetic(const Instruction& in, uint64_t a, uint64_t b, uint64_t c) {
  switch (in.type) {
    case Type::kF32:
      if (in.op == Op::kNeg) return a ^ 0x80000000u;
      if (in.op == Op::kAbs) return a & 0x7FFFFFFFu;
      return BitsOfF32(F32Arithmetic(in, F32Of(a), F32Of(b), F32Of(c)));
    case Type::kF64: return BitsOfF64(F64Arithmetic(in, F64Of(a), F64Of(b)));
    case Type::kF16x2:
    case Type::kBf16x2: return HalvesArithmetic(in, a, b, c);
    default: return IntegerArithmetic(in, a, b, c);
  }
}

bool Holds(const Instruction& in, uint64_t a, uint64_t b) {
  int order;  // -1, 0 or 1 if a is less than, equal to or greater than b; 2 if a number is NaN
  if (in.type == Type::kF32 || in.type == Type::kF64) {
    const double x = in.type == Type::kF32 ? F32Of(a) : F64Of(a);
    const double y = in.type == Type::kF32 ? F32Of(b) : F64Of(b);
    order = std::isnan(x) || std::isnan(y) ? 2 : x < y ? -1 : x > y;
  } else if (IsSigned(in.type)) {
    const int width = BitsOfType(in.type);
    const int64_t x = SignedOf(a, width), y = SignedOf(b, width);
    order = x < y ? -1 : x > y;
  } else {
    order = a < b ? -1 : a > b;
  }
  const bool is_nan = order == 2;
  switch (in.compare) {
    case Compare::kEq: return order == 0;
    case Compare::kNe: return !is_nan && order != 0;
    case Compare::kLt: return order == -1;
    case Compare::kLe: return order == -1 || order == 0;
    case Compare::kGt: return order == 1;
    case Compare::kGe: return order == 1 || order == 0;
    case Compare::kEqu: return is_nan || order == 0;
    case Compare::kNeu: return order != 0;
    case Compare::kLtu: return is_nan || order == -1;
    case Compare::kLeu: return is_nan || order <= 0;
    case Compare::kGtu: return order >= 1;
    case Compare::kGeu: return order >= 0;
    case Compare::kNum: return !is_nan;
    case Compare::kNan: return is_nan;
  }
  return false;
}

uint64_t Convert(const Instruction& in, uint64_t a, uint64_t b) {
  // In a pair, the first argument becomes the higher half.
  if (in.type == Type::kF16x2 && in.from == Type::kF32)
    return uint64_t{DoubleToF16(F32Of(a))} << 16 | DoubleToF16(F32Of(b));
  if (in.type == Type::kBf16x2 && in.from == Type::kF32)
    return uint64_t{DoubleToBf16(F32Of(a))} << 16 | DoubleToBf16(F32Of(b));
  if (in.type == Type::kF16x2 && in.from == Type::kE4m3x2) {
    return DoubleToF16(E4m3ToDouble(static_cast<uint8_t>(a))) |
           uint64_t{DoubleToF16(E4m3ToDouble(static_cast<uint8_t>(a >> 8)))} << 16;
  }
  if (in.type == Type::kE4m3x2 && in.from == Type::kF32)
    return DoubleToE4m3(F32Of(a)) << 8 | DoubleToE4m3(F32Of(b));
  const int from_width = BitsOfType(in.from);
  if (!IsFloat(in.from) && !IsFloat(in.type))
    return IsSigned(in.from) ? static_cast<uint64_t>(SignedOf(a, from_width)) : a;
  if (!IsFloat(in.from)) {
    const bool is_signed = IsSigned(in.from);
    const int64_t value = SignedOf(a, from_width);
    if (in.type == Type::kF32)
      return BitsOfF32(is_signed ? static_cast<float>(value) : static_cast<float>(a));
    return BitsOfF64(is_signed ? static_cast<double>(value) : static_cast<double>(a));
  }
  const double value = in.from == Type::kF16   ? F16ToDouble(static_cast<uint16_t>(a))
                       : in.from == Type::kF32 ? F32Of(a)
                                               : F64Of(a);
  if (!IsFloat(in.type)) return ToInteger(in, value);
  if (in.type == Type::kF64) return BitsOfF64(value);
  if (in.type != Type::kF32) Unknown(in);
  if (in.is_saturated)
    return BitsOfF32(std::isnan(value) || value <= 0 ? 0.0f
                                                     : static_cast<float>(std::min(value, 1.0)));
  if (in.to_integer) {
    return BitsOfF32(static_cast<float>(in.rounding == Rounding::kDown   ? std::floor(value)
                                        : in.rounding == Rounding::kZero ? std::trunc(value)
                                                                         : std::nearbyint(value)));
  }
  return BitsOfF32(static_cast<float>(value));
}

uint64_t PermuteBytes(uint64_t a, uint64_t b, uint64_t selector) {
  uint64_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint64_t choice = selector >> (4 * i) & 15;
    uint64_t byte = ((choice & 4) != 0 ? b : a) >> (8 * (choice & 3)) & 0xFF;
    if ((choice & 8) != 0) byte = (byte & 0x80) != 0 ? 0xFF : 0;
    result |= byte << (8 * i);
  }
  return result;
}

}  // namespace sluice::ptx
