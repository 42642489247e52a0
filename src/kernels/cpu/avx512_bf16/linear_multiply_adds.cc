// linear with F32 multiply-adds, bit-identical to BF16 dot products (vdpbf16ps), for many rows.
//
// On Intel's cores (measured on Emerald Rapids), vdpbf16ps adds 32 products in two cycles. In that
// time, the core starts four F32 multiply-adds of 16 products each: twice as many products.
// vdpbf16ps first adds the product of the second numbers of a pair, then the product of the first
// numbers. Each addition rounds to nearest; subnormal inputs count as zero, and subnormal results
// become zero. A product of two BF16 numbers is exact in F32, so multiply-adds in this order, with
// MXCSR's flush-to-zero and denormals-are-zero, give bit-identical results.
#include "kernels/cpu/avx512/simd.h"
#include "kernels/cpu/avx512_bf16/kernels.h"

#include "kernels/cpu/linear_widened_inl.h"

namespace sluice::kernels::avx512_bf16 {
namespace {

// The order of additions and the rounding of vdpbf16ps.
struct DotOrder {
  static constexpr bool kSecondFirst = true;
  class Control {
   public:
    Control() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kFlushToZero | kDenormalsAreZero); }
    ~Control() { _mm_setcsr(before_); }
    Control(const Control&) = delete;
    Control& operator=(const Control&) = delete;

   private:
    static constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x40;
    unsigned before_;
  };
};

}  // namespace

void LinearBf16MultiplyAdds(const LinearArgs& args, int64_t row_begin, int64_t row_end,
                            int64_t panel_begin, int64_t panel_end) {
  // 32 registers hold 6 x 4 sums, four weights and one input.
  if (row_end - row_begin < kWidenedRows)
    LinearBf16(args, row_begin, row_end, panel_begin, panel_end);
  else
    MultiplyWidened<DotOrder, 6, 4>(args, row_begin, row_end, panel_begin, panel_end);
}

}  // namespace sluice::kernels::avx512_bf16
