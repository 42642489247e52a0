// The kernels for AMX; their contracts stand in kernel_table.h. Call them only where CPU and system have it.
#pragma once

#include "kernels/kernel_table.h"

namespace sluice::kernels::amx {

void LinearBf16(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin, int64_t panel_end);

}  // namespace sluice::kernels::amx
