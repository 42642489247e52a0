#include "kernels/reference/reference.h"

namespace sluice::kernels {

const KernelTable kReferenceKernels = {
    .linear_bf16 = reference::LinearBf16,
    .linear_f32_bf16 = reference::LinearF32Bf16,
    .linear_f32 = reference::LinearF32,
    .linear_i8 = reference::LinearI8,
    .panels_per_unit = 1,
    .expand_rows = 0,
    .has_block_scales = false,
    .expand_i8 = reference::ExpandI8,
    .expand_f8 = reference::ExpandF8,
    .expand_nvfp4 = reference::ExpandNvfp4,
    .expand_mxfp4 = reference::ExpandMxfp4,
    .packed_min_rows = 0,
    .packed_panels_per_unit = 0,
    .packed_lines_bytes = 0,
    .packed_x_bytes = nullptr,
    .pack_units = nullptr,
    .pack_x = nullptr,
    .linear_bf16_packed = nullptr,
    .linear_i8_packed = nullptr,
    .rms_norm_row = reference::RmsNormRow,
    .add = reference::Add,
    .divide = reference::Divide,
    .silu_mul = reference::SiluMul,
    .rope_half = reference::RopeHalf,
    .rope_interleaved = reference::RopeInterleaved,
    .attention_chunk = reference::AttentionChunk,
    .decode_e4m3 = reference::DecodeE4M3,
    .arg_max = reference::ArgMax,
    .largest = reference::Largest,
    .sum_exp = reference::SumExp,
    .count_greater = reference::CountGreater,
};

}  // namespace sluice::kernels
