// linear with 8-bit integers by dot products of four bytes (sdot).
#include "kernels/cpu/neon/simd.h"

#include "kernels/cpu/neon_dotprod/kernels.h"

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
inline Sums Dot(Sums sums, Weights w, Inputs x) {
  return vdotq_s32(sums, w, x);
}
inline int32_t Correction(const int8_t* /*x*/, int64_t /*cols*/) {
  return 0;
}

}  // namespace
}  // namespace sluice::kernels

#include "kernels/cpu/linear_i8_inl.h"

namespace sluice::kernels::neon_dotprod {

// 32 registers hold 6 x 4 sums, four weights and one input.
void LinearI8(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
              int64_t panel_end) {
  if (row_end - row_begin <= 2)
    MultiplyI8Range<2, 2>(args, row_begin, row_end, panel_begin, panel_end);
  else
    MultiplyI8Range<6, 1>(args, row_begin, row_end, panel_begin, panel_end);
}

}  // namespace sluice::kernels::neon_dotprod
