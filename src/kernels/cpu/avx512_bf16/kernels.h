// The kernels for AVX-512 BF16 and VBMI; contracts: kernel_table.h. Call them only on a CPU
// that has them.
#pragma once

#include "kernels/kernel_table.h"

namespace sluice::kernels::avx512_bf16 {

constexpr int64_t kExpandRows = 48;  // a multiple of the number of rows of a tile
// Number of panels of a tile that has one row, with codes of 4 bits.
constexpr int kOneRowPanels = 8;
LinearFunction LinearBf16;
// Bit-identical to LinearBf16, but uses F32 multiply-adds for many rows: faster where dot products
// are slow.
LinearFunction LinearBf16MultiplyAdds;
AttentionFunction AttentionChunk;
AttentionHeadsFunction AttentionHeads;
// With more rows than this, converting the codes to BF16 first is faster.
constexpr int kAttentionCodeRows = 16;
AttentionFunction AttentionCodesChunk;
AttentionHeadsFunction AttentionCodesHeads;

}  // namespace sluice::kernels::avx512_bf16
