// The kernel tables of the aarch64 instruction sets. This file contains only addresses, so it is
// compiled without special instructions.
#include "kernels/cpu/neon/kernels.h"
#include "kernels/cpu/neon_bf16/kernels.h"
#include "kernels/cpu/neon_dotprod/kernels.h"
#include "kernels/cpu/tables.h"
#include "kernels/portable/portable.h"

namespace sluice::kernels {
namespace {

constexpr KernelTable kNeonTable = {
    .linear_bf16 = neon::LinearBf16Segments,
    .linear_f32_bf16 = neon::LinearF32Bf16,
    .linear_f32 = neon::LinearF32,
    .linear_i8 = neon::LinearI8,
    .panels_per_unit = 2,
    .expand_rows = neon::kExpandRows,
    .has_block_scales = true,
    .expand_i8 = neon::ExpandI8,
    .expand_f8 = neon::ExpandF8,
    .expand_nvfp4 = neon::ExpandNvfp4,
    .expand_mxfp4 = neon::ExpandMxfp4,
    .expand_int4 = neon::ExpandInt4,
    .attention_chunk = neon::AttentionChunk,
};

constexpr KernelTable NeonDotprodTable() {
  KernelTable table = kNeonTable;
  table.linear_i8 = neon_dotprod::LinearI8;
  return table;
}

constexpr KernelTable NeonBf16Table() {
  KernelTable table = kNeonTable;
  table.linear_bf16 = neon_bf16::LinearBf16;
  table.linear_i8 = neon_bf16::LinearI8;
  table.panels_per_unit = 4;
  table.expand_rows = neon_bf16::kExpandRows;
  table.has_block_scales = false;
  return table;
}

}  // namespace

const KernelTable kPortableKernels = portable::TableFrom<neon::AttentionChunk>(kNeonTable);
const KernelTable kNeonKernels = kNeonTable;
const KernelTable kNeonDotprodKernels = NeonDotprodTable();
const KernelTable kNeonBf16Kernels = NeonBf16Table();

}  // namespace sluice::kernels
