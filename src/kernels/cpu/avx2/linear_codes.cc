// linear of BF16 inputs: few rows with codes in registers, the rest in segments (linear_inl.h).
#include "kernels/cpu/avx2/simd.h"

#include "kernels/cpu/avx2/float_codes_inl.h"
#include "kernels/cpu/avx2/kernels.h"

namespace sluice::kernels::avx2 {
namespace {

// Each five rows expand the codes once more: with more rows than these, expanding them once for all
// is faster.
constexpr int64_t kCodeRows = 10;

// 16 registers hold the sums of one row and three panels, two and two, or five and one; beside what
// scales take, four and one.
template <typename Codes>
LinearFunction* FunctionFor(int64_t rows) {
  if (rows == 1) return MultiplyCodes<Codes, 1, 3>;
  if (rows == 2) return MultiplyCodes<Codes, 2, 2>;
  if (rows > kCodeRows) return LinearBf16Segments;
  return MultiplyCodes < Codes, Codes::kHasScales ? 4 : 5, 1 > ;
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

}  // namespace sluice::kernels::avx2
