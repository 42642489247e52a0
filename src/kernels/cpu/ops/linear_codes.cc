// linear for BF16 inputs with weights stored as codes. For few rows the codes are expanded in
// registers, otherwise segment by segment (linear_inl.h).
#include "kernels/cpu/ops/ops.h"

#include SLUICE_FLOAT_CODES  // kernels/cpu/<isa>/float_codes_inl.h

namespace sluice::kernels::SLUICE_ISA {
namespace {

// Each tile of rows expands the codes again. With more rows than this, expanding them once for all
// tiles is faster.
constexpr int64_t kCodeRows = kLanes == 16 ? 64 : 10;
static_assert(kCodeRows <= kChunkRows);

// Sums that fit in registers, as rows x panels. AVX-512 (32 registers): 2 x 4 or 8 x 2. AVX2 (16
// registers): 1 x 3, 2 x 2 or 5 x 1; 4 x 1 if scales or unusual codes also need registers.
template <typename Codes>
LinearFunction* FunctionFor(int64_t rows) {
  if (rows > kCodeRows) return LinearBf16Segments;
  if constexpr (kLanes == 16) {
    if (rows <= 2) return MultiplyCodes<Codes, 2, 4>;
    return MultiplyCodes<Codes, 8, 2>;
  } else {
    if (rows == 1) return MultiplyCodes<Codes, 1, 3>;
    if (rows == 2) return MultiplyCodes<Codes, 2, 2>;
    constexpr bool kScalesNumbers = Codes::kHasScales && !Codes::kRescales;
    constexpr int kMaxRows = kScalesNumbers || Codes::kHasUnusual ? 4 : 5;
    return MultiplyCodes<Codes, kMaxRows, 1>;
  }
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
