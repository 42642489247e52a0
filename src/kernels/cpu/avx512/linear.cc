#include "kernels/cpu/avx512/kernels.h"
#include "kernels/cpu/avx512/simd.h"

#include "kernels/cpu/linear_inl.h"

namespace sluice::kernels::avx512 {
namespace {

// 32 registers hold 5 x 4 sums, four weights twice (as stored and widened) and one input.
template <bool kBf16Inputs, bool kBf16Weights>
void Multiply(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
              int64_t panel_end) {
  MultiplyRange<kBf16Inputs, kBf16Weights, 5, 4>(args, row_begin, row_end, panel_begin, panel_end);
}

}  // namespace

void LinearBf16(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                int64_t panel_end) {
  Multiply<true, true>(args, row_begin, row_end, panel_begin, panel_end);
}

void LinearF32Bf16(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                   int64_t panel_end) {
  Multiply<false, true>(args, row_begin, row_end, panel_begin, panel_end);
}

void LinearF32(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
               int64_t panel_end) {
  Multiply<false, false>(args, row_begin, row_end, panel_begin, panel_end);
}

}  // namespace sluice::kernels::avx512
