// quantize rows: quantizes a linear layer's inputs as a checkpoint's scheme prescribes.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "kernels/matrix.h"
#include "tensor/activation_format.h"

namespace sluice::kernels {

// Computes out[i, :] = x[i, :] (F32 or BF16), rounded to `format` and dequantized; F32, contiguous
// [rows, cols]. `input_scale`: the stored scale of kFp8Static and kInt8Static, the global scale of
// kNvfp4. A row's result depends only on that row. REQUIRES: kind is neither kNone nor
// kInt8PerToken; cols is a multiple of the group size, if there are groups.
void RoundRows(ThreadPool& pool, const ActivationFormat& format, float input_scale,
               const Activations& x, float* out);

// Quantizes activations to INT8 per row: scale[i] = amax(x[i, :]) / 127, out = x / scale rounded to
// nearest even, in [-127, 127]; a row of zeros has scale 1. out: contiguous [rows, cols].
void QuantizeInt8Rows(ThreadPool& pool, const Activations& x, int8_t* out, float* scales);

}  // namespace sluice::kernels
