// Dot products of a vector of BF16 pairs with one pair in memory.
#pragma once

#include <immintrin.h>
#include <stdint.h>

namespace sluice::kernels::avx512_bf16 {
namespace {

inline __m512bh Broadcast(const uint16_t* pair) {
  int bits;
  __builtin_memcpy(&bits, pair, 4);
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(bits));
}

// Adds the products of all pairs with one pair, which the instruction reads from memory. GCC 12
// would keep a broadcast pair that several sums share in a register, but too few registers are
// free. Clang's unoptimized code has no register for such an operand.
inline __m512 DotOfAll(__m512 sums, __m512bh pairs, const uint16_t* pair) {
#ifdef __clang__
  return _mm512_dpbf16_ps(sums, pairs, Broadcast(pair));
#else
  typedef int32_t __attribute__((may_alias, aligned(2))) Pair;
  asm("vdpbf16ps %2%{1to16%}, %1, %0"
      : "+v"(sums)
      : "v"(pairs), "m"(*reinterpret_cast<const Pair*>(pair)));
  return sums;
#endif
}

}  // namespace
}  // namespace sluice::kernels::avx512_bf16
