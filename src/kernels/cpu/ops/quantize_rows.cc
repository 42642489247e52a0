#include "kernels/quantize_int8_inl.h"

namespace sluice::kernels::SLUICE_ISA {

void QuantizeInt8Row(const void* x, bool bf16, int64_t cols, int8_t* out, float* scale) {
  if (bf16)
    QuantizeInt8(static_cast<const uint16_t*>(x), cols, out, scale);
  else
    QuantizeInt8(static_cast<const float*>(x), cols, out, scale);
}

}  // namespace sluice::kernels::SLUICE_ISA
