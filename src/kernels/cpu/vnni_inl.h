// Implements the requirements of linear_i8_inl.h with dot products of unsigned by signed bytes. The
// including file first defines Dot(Sums, Words, Words), which adds such products to sums. 128 is
// added to the weights; the excess, 128 times the sum of the inputs, is subtracted at the end.
// Arithmetic is modulo 2^32, so only the final result must fit.
#pragma once

#include <stdint.h>

namespace sluice::kernels {
namespace {

using Weights = Words;
using Inputs = Words;

inline Words WeightsOf(Words bytes) {
  return bytes ^ SetWords(static_cast<int>(0x80808080u));
}
inline Inputs InputsAt(const int8_t* x) {
  int bytes;
  __builtin_memcpy(&bytes, x, 4);
  return SetWords(bytes);
}
inline int32_t Correction(const int8_t* x, int64_t cols) {
  constexpr int64_t kBytes = sizeof(Words);
  // Uses several sums, so that products need not wait for one another.
  constexpr int kSums = 4;
  Sums sums[kSums] = {};
  const auto add = [&](const int8_t* inputs) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int i = 0; i < kSums; ++i)
      sums[i] = Dot(sums[i], SetWords(0x01010101), LoadWords(inputs + kBytes * i));
  };
  int64_t k = 0;
  for (; k + kSums * kBytes <= cols; k += kSums * kBytes) add(x + k);
  if (k < cols) {
    int8_t rest[kSums * kBytes] = {};
    __builtin_memcpy(rest, x + k, static_cast<size_t>(cols - k));
    add(rest);
  }
  const Sums all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  int32_t sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) sum += all[lane];
  return -128 * sum;
}

}  // namespace
}  // namespace sluice::kernels
