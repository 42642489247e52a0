// linear for BF16 inputs with weights stored as codes. For few rows the codes are expanded in
// registers, otherwise segment by segment (linear_inl.h).
#include "kernels/cpu/ops/ops.h"

#include SLUICE_FLOAT_CODES  // kernels/cpu/<isa>/float_codes_inl.h

namespace sluice::kernels::SLUICE_ISA {
namespace {

template <typename Codes>
LinearFunction* FunctionFor(int64_t rows) {
  return rows > kCodeRows ? LinearBf16Segments : FewRowsFunction<Codes>(rows);
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
  LinearFunction* function = LinearBf16Segments;
  if (args.expand != nullptr && args.cols % kStepInputs == 0)
    function = FunctionOf(args, row_end - row_begin);
  function(args, row_begin, row_end, panel_begin, panel_end);
}

}  // namespace sluice::kernels::SLUICE_ISA
