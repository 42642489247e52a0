// The kernels for AVX-512 BF16 and VNNI; their contracts stand in kernel_table.h. Call them only on
// a CPU that has them.
#pragma once

#include "kernels/kernel_table.h"

namespace sluice::kernels::avx512_bf16 {

constexpr int64_t kExpandRows = 6;
void LinearBf16(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                int64_t panel_end);
void LinearI8(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
              int64_t panel_end);

}  // namespace sluice::kernels::avx512_bf16
