// linear with 8-bit integers, without dot products of bytes: uses products of 16-bit integers.
#include "kernels/cpu/ops/ops.h"

namespace sluice::kernels {
namespace {

// Bytes 0 and 2, and bytes 1 and 3, of each word as 16-bit numbers. Sums of two products of 8-bit
// numbers fit in 32 bits.
struct WordPairs {
  Words even;
  Words odd;
};
using Weights = WordPairs;
using Inputs = WordPairs;
typedef int Sums __attribute__((vector_size(sizeof(Words))));

inline WordPairs WeightsOf(Words bytes) {
  return {EvenBytes(bytes), OddBytes(bytes)};
}
inline WordPairs InputsAt(const int8_t* x) {
  int bytes;
  __builtin_memcpy(&bytes, x, 4);
  return WeightsOf(SetWords(bytes));
}
inline Sums Dot(Sums sums, const WordPairs& w, const WordPairs& x) {
  return sums + (Sums)MulAddPairs(w.even, x.even) + (Sums)MulAddPairs(w.odd, x.odd);
}
inline int32_t Correction(const int8_t* /*x*/, int64_t /*cols*/) {
  return 0;
}

}  // namespace
}  // namespace sluice::kernels

#include "kernels/cpu/linear_i8_inl.h"

namespace sluice::kernels::SLUICE_ISA {

// AVX-512: 32 registers contain 4 x 4 sums, four pairs of weights and one pair of inputs. AVX2: 16
// registers contain 3 x 2 sums, two pairs of weights and one pair of inputs; a single row uses more
// panels, so that enough sums are in flight.
void LinearI8(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
              int64_t panel_end) {
  if constexpr (kLanes == 16)
    MultiplyI8Range<4, 4>(args, row_begin, row_end, panel_begin, panel_end);
  else if (row_end - row_begin == 1)
    MultiplyI8Range<1, 3>(args, row_begin, row_end, panel_begin, panel_end);
  else
    MultiplyI8Range<3, 1>(args, row_begin, row_end, panel_begin, panel_end);
}

}  // namespace sluice::kernels::SLUICE_ISA
