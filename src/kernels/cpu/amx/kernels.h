// The kernels for AMX with BF16 and INT8; contracts: kernel_table.h. Call them only if CPU and
// operating system support AMX.
#pragma once

#include "kernels/kernel_table.h"

namespace sluice::kernels::amx {

constexpr int64_t kExpandRows = 32;
LinearFunction LinearBf16, LinearI8;
AttentionFunction AttentionChunk;

// Maximum number of panels in products of many rows, whose activations are packed into whole tiles
// (KernelTable). Each product has at most kPackedMaxRows rows.
constexpr int kPackedPanels = 16;
constexpr int kPackedMaxRows = 512;
constexpr int64_t kPackedLinesBytes = int64_t{256} << 10;
int64_t PackedXBytes(int64_t rows, int64_t row_bytes);
int64_t PackUnits(int64_t rows, int64_t row_bytes);
void PackX(const LinearArgs& args, int64_t unit_begin, int64_t unit_end);
void LinearBf16Packed(const LinearArgs& args, int64_t panel_begin, int64_t panel_end);
void LinearI8Packed(const LinearArgs& args, int64_t panel_begin, int64_t panel_end);

}  // namespace sluice::kernels::amx
