// linear with 8-bit integers by dot products (sdot) and matrix products (smmla).
#include "kernels/cpu/neon_bf16/words_inl.h"

#include "kernels/cpu/neon_bf16/kernels.h"

namespace sluice::kernels::neon_bf16 {
namespace {

struct Products {
  using Sums = int32x4_t;
  static constexpr int64_t kBytes = 1;

  static Sums ZeroSums() { return vdupq_n_s32(0); }
  static Sums Dot(Sums sums, uint32x4_t inputs, uint32x4_t line) {
    return vdotq_s32(sums, vreinterpretq_s8_u32(line), vreinterpretq_s8_u32(inputs));
  }
  static Sums Matrix(Sums sums, uint32x4_t rows, uint32x4_t lines) {
    return vmmlaq_s32(sums, vreinterpretq_s8_u32(rows), vreinterpretq_s8_u32(lines));
  }
  static Floats ToFloats(Sums sums, const LinearArgs& args, int64_t row, int64_t n, Mask mask) {
    return Mul(Mul(kernels::ToFloats(sums), Load(args.row_scales + n, mask)),
               Set(args.x_scales[row]));
  }
};

}  // namespace

void LinearI8(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
              int64_t panel_end) {
  MultiplyWords<Products, false>(args, row_begin, row_end, panel_begin, panel_end);
}

}  // namespace sluice::kernels::neon_bf16
