// Implements the instructions of emulator.h.
#include "kernels/cuda/emulator.h"

#include <cmath>

#include "kernels/cuda/emulated_bytes.h"

namespace sluice::emulator {
namespace {

float E4m3(uint8_t code) {
  const float magnitude = (code & 0x7F) == 0x7F
                              ? NAN
                              : FloatFromBits(static_cast<uint32_t>(code & 0x7F) << 20) * 0x1p120f;
  return code & 0x80 ? -magnitude : magnitude;
}

// Rounds to F16. NaN becomes the NaN that the instruction produces.
uint16_t ToF16(float value) {
  const uint32_t bits = BitsOf(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  constexpr uint32_t kNan = 0x7F800000u, kTooLarge = 0x477FF000u, kLeastNormal = 0x38800000u;
  uint32_t code;
  if (magnitude > kNan)
    return 0x7FFF;
  else if (magnitude >= kTooLarge)
    code = 0x7C00;
  else if (magnitude < kLeastNormal)
    code = BitsOf(FloatFromBits(magnitude) + 0.5f) - BitsOf(0.5f);
  else
    code = ((magnitude + 0xFFFu + (magnitude >> 13 & 1u)) >> 13) - (112u << 10);
  return static_cast<uint16_t>(code | sign);
}

float F16(const unsigned char* bytes) {
  uint16_t bits;
  memcpy(&bits, bytes, 2);
  const uint32_t magnitude = bits & 0x7FFFu;
  // Raises the exponent's bias from 15 to 127.
  const float value = magnitude > 0x7C00u    ? NAN
                      : magnitude == 0x7C00u ? INFINITY
                                             : FloatFromBits(magnitude << 13) * 0x1p112f;
  return bits & 0x8000u ? -value : value;
}

float Bf16(const unsigned char* bytes) {
  uint16_t bits;
  memcpy(&bits, bytes, 2);
  return FloatFromBits(static_cast<uint32_t>(bits) << 16);
}

// Returns the nearest code; of two nearest codes, the even one. Beyond 448, returns the largest
// code. NaN becomes the NaN that the instruction produces.
uint8_t ToE4m3(float value) {
  constexpr int kLargest = 0x7E, kNan = 0x7F;
  if (value != value) return kNan;
  const float magnitude = fabsf(value);
  int code = 0;  // the largest code that does not exceed the magnitude
  for (int bit = 0x40; bit > 0; bit /= 2) {
    if ((code | bit) <= kLargest && E4m3(static_cast<uint8_t>(code | bit)) <= magnitude)
      code |= bit;
  }
  if (code < kLargest) {
    // Both differences are exact in F64.
    const double below = double{magnitude} - double{E4m3(static_cast<uint8_t>(code))};
    const double above = double{E4m3(static_cast<uint8_t>(code + 1))} - double{magnitude};
    if (above < below || (above == below && code % 2 == 1)) ++code;
  }
  return static_cast<uint8_t>(code | (std::signbit(value) ? 0x80 : 0));
}

struct MmaInput {
  float d[4];
  uint32_t a[4];
  uint32_t b[2];
};

// Computes d += a b for a warp, with fragments of 4-byte registers that each contain kPerRegister
// numbers: a is [16, 8 * kPerRegister], b [8 * kPerRegister, 8]. The hardware's order of sums is
// unspecified; the emulator sums E4M3 in the order of two F16 products of the same numbers.
template <int kPerRegister, float (*kNumber)(const unsigned char*)>
void CombineMma(const unsigned char* inputs, unsigned char* outputs) {
  constexpr int kDepth = 8 * kPerRegister;
  float a[16][kDepth], b[kDepth][8], d[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    MmaInput input;
    memcpy(&input, inputs + lane * sizeof(input), sizeof(input));
    const int g = lane / 4, t = lane % 4;
    for (int r = 0; r < 4; ++r) {
      for (int i = 0; i < kPerRegister; ++i) {
        const auto* bytes =
            reinterpret_cast<const unsigned char*>(&input.a[r]) + i * 4 / kPerRegister;
        a[g + r % 2 * 8][kPerRegister * t + i + r / 2 * kDepth / 2] = kNumber(bytes);
      }
      d[g + r / 2 * 8][2 * t + r % 2] = input.d[r];
    }
    for (int r = 0; r < 2; ++r) {
      for (int i = 0; i < kPerRegister; ++i) {
        const auto* bytes =
            reinterpret_cast<const unsigned char*>(&input.b[r]) + i * 4 / kPerRegister;
        b[kPerRegister * t + i + r * kDepth / 2][g] = kNumber(bytes);
      }
    }
  }
  for (int m = 0; m < 16; ++m) {
    for (int place = 0; place < kDepth; ++place) {
      constexpr int kPairs = kPerRegister / 2;
      const int within = place % 16;
      const int k =
          kPairs == 1 ? place : place / 16 * 16 + within % 8 / 2 * 4 + within / 8 * 2 + within % 2;
      for (int n = 0; n < 8; ++n) d[m][n] += a[m][k] * b[k][n];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    float result[4];
    for (int r = 0; r < 4; ++r) result[r] = d[lane / 4 + r / 2 * 8][2 * (lane % 4) + r % 2];
    memcpy(outputs + lane * sizeof(result), result, sizeof(result));
  }
}

template <bool kTransposed>
void CombineLoadMatrix(const unsigned char* inputs, unsigned char* outputs) {
  const unsigned char* rows[32];
  memcpy(static_cast<void*>(rows), inputs, sizeof(rows));
  for (int lane = 0; lane < 32; ++lane) {
    for (int m = 0; m < 4; ++m) {
      for (int i = 0; i < 2; ++i) {
        const int row = kTransposed ? 2 * (lane % 4) + i : lane / 4;
        const int col = kTransposed ? lane / 4 : 2 * (lane % 4) + i;
        memcpy(outputs + lane * 16 + m * 4 + i * 2, rows[m * 8 + row] + col * 2, 2);
      }
    }
  }
}

void Mma(const char* what, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
         Combine combine) {
  MmaInput input;
  memcpy(input.d, d, sizeof(d));
  memcpy(input.a, a, sizeof(a));
  memcpy(input.b, b, sizeof(b));
  WarpCollective(what, &input, sizeof(input), d, sizeof(d), combine);
}

}  // namespace

float E4m3Of(const unsigned char* byte) {
  return (*byte & 0x7F) == 0x7F ? NAN : E4m3(*byte);
}

void LoadMatrix4(uint32_t (&registers)[4], const void* shared_row) {
  CheckMatrixRow(shared_row);
  WarpCollective("LoadMatrix4", static_cast<const void*>(&shared_row), sizeof(shared_row),
                 registers, sizeof(registers), CombineLoadMatrix<false>);
}

void LoadMatrix4Transposed(uint32_t (&registers)[4], const void* shared_row) {
  CheckMatrixRow(shared_row);
  WarpCollective("LoadMatrix4Transposed", static_cast<const void*>(&shared_row), sizeof(shared_row),
                 registers, sizeof(registers), CombineLoadMatrix<true>);
}

void MmaBf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  Mma("MmaBf16", d, a, b, CombineMma<2, Bf16>);
}

void MmaF16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  Mma("MmaF16", d, a, b, CombineMma<2, F16>);
}

uint32_t PackF16(float low, float high) {
  return ToF16(low) | static_cast<uint32_t>(ToF16(high)) << 16;
}

uint32_t MultiplyF16x2(uint32_t a, uint32_t b) {
  uint32_t result = 0;
  for (int shift = 0; shift < 32; shift += 16) {
    const auto number = [shift](uint32_t pair) {
      const auto bits = static_cast<uint16_t>(pair >> shift);
      return F16(reinterpret_cast<const unsigned char*>(&bits));
    };
    // The product is exact in F32, so it is rounded once.
    result |= static_cast<uint32_t>(ToF16(number(a) * number(b))) << shift;
  }
  return result;
}

uint32_t F16x2ToBf16x2(uint32_t pair) {
  uint32_t result = 0;
  for (int shift = 0; shift < 32; shift += 16) {
    const auto half = static_cast<uint16_t>(pair >> shift);
    const float value = F16(reinterpret_cast<const unsigned char*>(&half));
    const uint32_t bits = BitsOf(value);
    const uint32_t rounded = value != value ? 0x7FFFu : (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
    result |= rounded << shift;
  }
  return result;
}

void E4m3x4ToF16(uint32_t codes, uint32_t& low, uint32_t& high) {
  const auto number = [codes](int i) { return E4m3(static_cast<uint8_t>(codes >> 8 * i)); };
  low = PackF16(number(0), number(1));
  high = PackF16(number(2), number(3));
}

uint32_t PackE4m3(float low, float high) {
  return ToE4m3(low) | static_cast<uint32_t>(ToE4m3(high)) << 8;
}

void MmaE4m3(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  Mma("MmaE4m3", d, a, b, CombineMma<4, E4m3Of>);
}

}  // namespace sluice::emulator
