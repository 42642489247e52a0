// The kernels for AVX-512 BF16; their contracts stand in kernel_table.h. Call them only on a CPU
// that has it.
#pragma once

#include "kernels/kernel_table.h"

namespace sluice::kernels::avx512_bf16 {

void LinearBf16(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                int64_t panel_end);

}  // namespace sluice::kernels::avx512_bf16
