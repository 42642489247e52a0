// linear with 8-bit integers by dot products of four bytes (vpdpbusd).
#include "kernels/cpu/avx512/simd.h"
#include "kernels/cpu/avx512_vnni/kernels.h"

namespace sluice::kernels {
namespace {

typedef int Sums __attribute__((vector_size(sizeof(Words))));
inline Sums Dot(Sums sums, Words w, Words x) {
  return (Sums)_mm512_dpbusd_epi32((Words)sums, w, x);
}

}  // namespace
}  // namespace sluice::kernels

#include "kernels/cpu/vnni_inl.h"

#include "kernels/cpu/linear_i8_inl.h"

namespace sluice::kernels::avx512_vnni {

// 32 registers contain 6 x 4 sums, four weights and one input.
void LinearI8(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
              int64_t panel_end) {
  MultiplyI8Range<6, 4>(args, row_begin, row_end, panel_begin, panel_end);
}

}  // namespace sluice::kernels::avx512_vnni
