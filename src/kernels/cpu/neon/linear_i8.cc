// linear with 8-bit integers without dot product instructions.
#include "kernels/cpu/neon/simd.h"

#include "kernels/cpu/neon/kernels.h"

namespace sluice::kernels {
namespace {

using Weights = int8x16_t;
using Inputs = int8x16_t;
using Sums = Words;

inline Weights WeightsOf(Words bytes) {
  return vreinterpretq_s8_s32(bytes);
}
inline Inputs InputsAt(const int8_t* x) {
  uint32_t bytes;
  __builtin_memcpy(&bytes, x, 4);
  return vreinterpretq_s8_u32(vdupq_n_u32(bytes));
}
// The sum of two products, each of a number in [-128, 127] and a number in [-127, 127], fits in 16
// bits.
inline Sums Dot(Sums sums, Weights w, Inputs x) {
  const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(x));
  const int16x8_t high = vmull_high_s8(w, x);
  return vpadalq_s16(sums, vpaddq_s16(low, high));
}
inline int32_t Correction(const int8_t* /*x*/, int64_t /*cols*/) {
  return 0;
}

}  // namespace
}  // namespace sluice::kernels

#include "kernels/cpu/linear_i8_inl.h"

namespace sluice::kernels::neon {

// 32 registers hold 5 x 4 sums, four weights, one input and the products.
void LinearI8(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
              int64_t panel_end) {
  MultiplyI8Range<5, 1>(args, row_begin, row_end, panel_begin, panel_end);
}

}  // namespace sluice::kernels::neon
