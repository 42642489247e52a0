// The kernel tables of the x86-64 instruction sets. This file contains only addresses, so it is
// compiled without special instructions.
#include "kernels/cpu/tables.h"

#include "kernels/cpu/amx/kernels.h"
#include "kernels/cpu/avx2/kernels.h"
#include "kernels/cpu/avx2_vnni/kernels.h"
#include "kernels/cpu/avx512/kernels.h"
#include "kernels/cpu/avx512_bf16/kernels.h"
#include "kernels/cpu/avx512_vnni/kernels.h"
#include "kernels/portable/portable.h"
#include "kernels/reference/reference.h"

namespace sluice::kernels {
namespace {

constexpr KernelTable kAvx2Table = {
    .linear_bf16 = avx2::LinearBf16,
    .linear_f32_bf16 = avx2::LinearF32Bf16,
    .linear_f32 = avx2::LinearF32,
    .linear_i8 = avx2::LinearI8,
    .panels_per_unit = 3,
    .expand_rows = avx2::kExpandRows,
    .has_block_scales = true,
    .expand_i8 = avx2::ExpandI8,
    .expand_f8 = avx2::ExpandF8,
    .expand_nvfp4 = avx2::ExpandNvfp4,
    .expand_mxfp4 = avx2::ExpandMxfp4,
    .expand_int4 = avx2::ExpandInt4,
    .attention_chunk = avx2::AttentionChunk,
    .few_rows = avx2::kFewRows,
    .few_rows_panels = avx2::kFewRowsPanels,
};

constexpr KernelTable Avx2SubnormalsTable() {
  KernelTable table = kAvx2Table;
  table.linear_bf16 = avx2::LinearBf16Subnormals;
  return table;
}

constexpr KernelTable Avx2VnniTable(LinearFunction* linear_i8) {
  KernelTable table = kAvx2Table;
  table.linear_i8 = linear_i8;
  return table;
}

constexpr KernelTable kAvx512Table = {
    .linear_bf16 = avx512::LinearBf16,
    .linear_f32_bf16 = avx512::LinearF32Bf16,
    .linear_f32 = avx512::LinearF32,
    .linear_i8 = avx512::LinearI8,
    .panels_per_unit = 4,
    .expand_rows = avx512::kExpandRows,
    .has_block_scales = true,
    .expand_i8 = avx512::ExpandI8,
    .expand_f8 = avx512::ExpandF8,
    .expand_nvfp4 = avx512::ExpandNvfp4,
    .expand_mxfp4 = avx512::ExpandMxfp4,
    .expand_int4 = avx512::ExpandInt4,
    .attention_chunk = avx512::AttentionChunk,
};

constexpr KernelTable Avx512VnniTable() {
  KernelTable table = kAvx512Table;
  table.linear_i8 = avx512_vnni::LinearI8;
  return table;
}

constexpr KernelTable Avx512Bf16Table() {
  KernelTable table = Avx512VnniTable();
  table.linear_bf16 = avx512_bf16::LinearBf16;
  table.expand_rows = avx512_bf16::kExpandRows;
  table.attention_chunk = avx512_bf16::AttentionChunk;
  table.attention_heads = avx512_bf16::AttentionHeads;
  table.attention_code_rows = avx512_bf16::kAttentionCodeRows;
  table.few_rows = 1;
  table.few_rows_panels = avx512_bf16::kOneRowPanels;
  return table;
}

constexpr KernelTable Avx512SlowBf16Table() {
  KernelTable table = Avx512Bf16Table();
  table.linear_bf16 = avx512_bf16::LinearBf16MultiplyAdds;
  return table;
}

constexpr KernelTable AmxTable() {
  KernelTable table = kAvx512Table;
  table.linear_bf16 = amx::LinearBf16;
  table.packed_min_rows = 33;
  table.expand_rows = amx::kExpandRows;
  table.linear_i8 = amx::LinearI8;
  table.packed_panels_per_unit = amx::kPackedPanels;
  table.packed_lines_bytes = amx::kPackedLinesBytes;
  table.packed_x_bytes = amx::PackedXBytes;
  table.pack_units = amx::PackUnits;
  table.pack_x = amx::PackX;
  table.linear_bf16_packed = amx::LinearBf16Packed;
  table.linear_i8_packed = amx::LinearI8Packed;
  table.attention_chunk = amx::AttentionChunk;
  return table;
}

}  // namespace

const KernelTable kPortableKernels = portable::TableFrom<avx2::AttentionChunk>(kAvx2Table);
const KernelTable kAvx2Kernels = kAvx2Table;
const KernelTable kAvx2SubnormalsKernels = Avx2SubnormalsTable();
const KernelTable kAvx2VnniKernels = Avx2VnniTable(avx2_vnni::LinearI8);
const KernelTable kAvx2VnniEvexKernels = Avx2VnniTable(avx2_vnni::LinearI8Evex);
const KernelTable kAvx512Kernels = kAvx512Table;
const KernelTable kAvx512VnniKernels = Avx512VnniTable();
const KernelTable kAvx512Bf16Kernels = Avx512Bf16Table();
const KernelTable kAvx512SlowBf16Kernels = Avx512SlowBf16Table();
const KernelTable kAmxKernels = AmxTable();

}  // namespace sluice::kernels
