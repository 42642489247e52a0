#include "kernels/reference/reference.h"

namespace sluice::kernels {

const KernelTable kReferenceKernels = {
    .linear_bf16 = reference::LinearBf16,
    .linear_f32_bf16 = reference::LinearF32Bf16,
    .linear_f32 = reference::LinearF32,
    .linear_i8 = reference::LinearI8,
    .panels_per_unit = 1,
    .expand_i8 = reference::ExpandI8,
    .expand_f8 = reference::ExpandF8,
    .expand_nvfp4 = reference::ExpandNvfp4,
    .expand_mxfp4 = reference::ExpandMxfp4,
    .expand_int4 = reference::ExpandInt4,
    .attention_chunk = reference::AttentionChunk,
};

}  // namespace sluice::kernels
