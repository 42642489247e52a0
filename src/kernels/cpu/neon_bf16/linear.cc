// linear with BF16 dot products (bfdot) and matrix products (bfmmla). Both instructions round to
// odd twice: the sum of two products, then its sum with the accumulator. They flush subnormal
// inputs and results to zero. bfmmla is defined as two steps of bfdot.
#include "kernels/cpu/neon_bf16/words_inl.h"

#include "kernels/cpu/neon_bf16/kernels.h"

namespace sluice::kernels::neon_bf16 {
namespace {

struct Products {
  using Sums = float32x4_t;
  static constexpr int64_t kBytes = 2;

  static Sums ZeroSums() { return vdupq_n_f32(0); }
  static Sums Dot(Sums sums, uint32x4_t inputs, uint32x4_t line) {
    return vbfdotq_f32(sums, vreinterpretq_bf16_u32(line), vreinterpretq_bf16_u32(inputs));
  }
  static Sums Matrix(Sums sums, uint32x4_t rows, uint32x4_t lines) {
    return vbfmmlaq_f32(sums, vreinterpretq_bf16_u32(rows), vreinterpretq_bf16_u32(lines));
  }
  static Floats ToFloats(Sums sums, const LinearArgs& args, int64_t /*row*/, int64_t n, Mask mask) {
    return args.row_scales == nullptr ? sums : Mul(sums, Load(args.row_scales + n, mask));
  }
};

}  // namespace

void LinearBf16(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                int64_t panel_end) {
  if (args.expand == nullptr) {
    MultiplyWords<Products, false>(args, row_begin, row_end, panel_begin, panel_end);
  } else if (row_end - row_begin == 1) {
    MultiplyWordTiles<Products, true, 1, 4>(args, row_begin, row_end, panel_begin, panel_end);
  } else {
    MultiplyWordTiles<Products, true, 2, 2>(args, row_begin, row_end, panel_begin, panel_end);
  }
}

}  // namespace sluice::kernels::neon_bf16
