// linear of BF16 inputs: few rows with codes in registers, the rest in segments (linear_inl.h).
#include "kernels/cpu/avx512/simd.h"

#include "kernels/cpu/avx512/float_codes_inl.h"
#include "kernels/cpu/avx512/kernels.h"

namespace sluice::kernels::avx512 {
namespace {

// Each eight rows expand the codes once more: with more rows than these, expanding them once for
// all is faster.
constexpr int64_t kCodeRows8 = 64;  // of codes of 8 bits
constexpr int64_t kCodeRows4 = 24;  // of 4 bits

// 32 registers hold the sums of up to two rows and four panels, or eight and two.
template <typename Codes>
LinearFunction* FunctionFor(int64_t rows) {
  if (rows <= 2) return MultiplyCodes<Codes, 2, 4>;
  if (rows <= (Codes::kInputs == 4 ? kCodeRows8 : kCodeRows4)) return MultiplyCodes<Codes, 8, 2>;
  return LinearBf16Segments;
}

LinearFunction* FunctionOf(const LinearArgs& args, int64_t rows) {
  if (args.expand == ExpandI8) return FunctionFor<I8Floats>(rows);
  if (args.expand == ExpandF8) return FunctionFor<F8Floats>(rows);
  if (args.expand == ExpandNvfp4) return FunctionFor<Nvfp4Floats>(rows);
  if (args.expand == ExpandMxfp4) return FunctionFor<Mxfp4Floats>(rows);
  if (args.scales != nullptr) return FunctionFor<ZeroPointInt4Floats>(rows);
  return FunctionFor<Int4Floats>(rows);
}

}  // namespace

void LinearBf16(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                int64_t panel_end) {
  const int64_t rows = row_end - row_begin;
  LinearFunction* function = LinearBf16Segments;
  if (args.expand != nullptr && args.cols % kStepInputs == 0) function = FunctionOf(args, rows);
  function(args, row_begin, row_end, panel_begin, panel_end);
}

}  // namespace sluice::kernels::avx512
