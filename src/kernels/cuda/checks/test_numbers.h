// Numbers for checks of kernels: the same in every run, and generated fast enough to fill
// gigabytes.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tensor/bfloat16.h"
#include "tensor/float8.h"

namespace sluice::checks {

class TestNumbers {
 public:
  explicit TestNumbers(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}

  uint64_t Bits() {  // splitmix64
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  int64_t Integer(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Bits() % static_cast<uint64_t>(high - low + 1));
  }
  float Uniform(float low, float high) {
    return low + (high - low) * static_cast<float>(Bits() >> 40) * 0x1p-24f;
  }
  // Returns a roughly normally distributed number with standard deviation 1.
  float Normal() {
    const uint64_t bits = Bits();
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<float>(bits >> (16 * i) & 0xFFFF) * 0x1p-16f;
    return (sum - 2) * 1.7320508f;
  }

  // Returns small integers, whose products have sums that are exact in F32, in any order.
  std::vector<float> Integers(int64_t count, int64_t largest) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = static_cast<float>(Integer(-largest, largest));
    return values;
  }
  std::vector<float> Normals(int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = Normal();
    return values;
  }
  // Returns a power of two from 2^low to 2^high.
  float PowerOfTwo(int low, int high) {
    return std::ldexp(1.0f, static_cast<int>(Integer(low, high)));
  }
  // Fills `out` with random elements of the table, as fast as memory allows.
  template <typename T>
  using Table = std::array<T, 4096>;
  template <typename T>
  void FillFrom(const Table<T>& table, T* out, int64_t count) {
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
      const uint64_t bits = Bits();
      for (int n = 0; n < 4; ++n) out[i + n] = table[bits >> (16 * n) & 0xFFF];
    }
    for (; i < count; ++i) out[i] = table[Bits() & 0xFFF];
  }
  // Fills `out` with random elements of table[0..255].
  void Fill(uint8_t* out, int64_t count, const uint8_t (&table)[256]) {
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
      uint64_t bits = Bits();
      for (int b = 0; b < 8; ++b, bits >>= 8) out[i + b] = table[bits & 0xFF];
    }
    for (; i < count; ++i) out[i] = table[Bits() & 0xFF];
  }

 private:
  uint64_t state_;
};

inline std::vector<uint16_t> ToBf16Bits(const std::vector<float>& values) {
  std::vector<uint16_t> bits(values.size());
  for (size_t i = 0; i < values.size(); ++i) bits[i] = ToBFloat16(values[i]).bits;
  return bits;
}
inline float FromBf16Bits(uint16_t bits) {
  return ToFloat(BFloat16{bits});
}

}  // namespace sluice::checks
