#include "kernels/cpu/ops/ops.h"

#include "kernels/cpu/linear_inl.h"
#include "kernels/cpu/linear_widened_inl.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

// AVX-512: 32 registers contain 5 x 4 sums, four weights twice (as stored and widened) and one
// input. AVX2: 16 registers contain 5 x 2 sums, two weights, a mask and one input (GCC 12 cannot
// fit 6 x 2 sums); few rows use more panels, so that enough sums are in flight. NEON: 32 registers
// contain 6 x 4 or 2 x 8 sums, four weights and one input.
template <bool kBf16Inputs, bool kBf16Weights>
void Multiply(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
              int64_t panel_end) {
  const auto multiply = [&]<int kMaxRows, int kPanels>() {
    MultiplyRange<kBf16Inputs, kBf16Weights, kMaxRows, kPanels>(args, row_begin, row_end,
                                                                panel_begin, panel_end);
  };
  const int64_t rows = row_end - row_begin;
  if constexpr (kBf16Inputs && kBf16Weights && kLanes == 16) {
    if (rows >= kWidenedRows) {
      return MultiplyWidened<Ascending, 6, 4>(args, row_begin, row_end, panel_begin, panel_end);
    }
  }
  if constexpr (kLanes == 16) {
    multiply.template operator()<5, 4>();
  } else if constexpr (kLanes == 8) {
    if (rows == 1)
      multiply.template operator()<1, 3>();
    else if (rows == 2)
      multiply.template operator()<2, 2>();
    else
      multiply.template operator()<5, 1>();
  } else if (rows <= 2) {
    multiply.template operator()<2, 2>();
  } else {
    multiply.template operator()<6, 1>();
  }
}

}  // namespace

void LinearBf16Segments(const LinearArgs& args, int64_t row_begin, int64_t row_end,
                        int64_t panel_begin, int64_t panel_end) {
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

}  // namespace sluice::kernels::SLUICE_ISA
