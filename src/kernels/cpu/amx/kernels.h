// The kernels for AMX; their contracts stand in kernel_table.h. Call them only where CPU and system
// have it.
#pragma once

#include "kernels/kernel_table.h"

namespace sluice::kernels::amx {

void LinearBf16(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                int64_t panel_end);
void AttentionChunk(const AttentionChunkArgs& args);

// Activations as whole tiles for products of many rows; see KernelTable. At most kPackedMaxRows
// rows at once.
constexpr int kPackedPanels = 8;
constexpr int kPackedMaxRows = 512;
int64_t PackedXBytes(int64_t rows, int64_t cols);
int64_t PackUnits(int64_t rows, int64_t cols);
void PackX(const LinearArgs& args, int64_t unit_begin, int64_t unit_end);
void LinearBf16Packed(const LinearArgs& args, int64_t panel_begin, int64_t panel_end);

}  // namespace sluice::kernels::amx
