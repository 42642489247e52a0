#include "kernels/cpu/avx512/kernels.h"
#include "kernels/cpu/avx512/simd.h"

#include "kernels/cpu/sampling_inl.h"

namespace sluice::kernels::avx512 {

int64_t ArgMax(const float* x, int64_t count) {
  return ArgMaxImpl(x, count);
}
float Largest(const float* x, int64_t count) {
  return LargestImpl(x, count);
}
double SumExp(const float* x, int64_t count, float shift) {
  return SumExpImpl(x, count, shift);
}
int64_t CountGreater(const float* x, int64_t count, float value) {
  return CountGreaterImpl(x, count, value);
}

}  // namespace sluice::kernels::avx512
