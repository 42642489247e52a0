// Around a sub-layer: the residual stream, the norms before and after, and what else is done to
// whole rows of it.
#pragma once

#include <span>
#include <vector>

#include "models/decoder_spec.h"
#include "models/layers/step.h"
#include "models/weights.h"

namespace sluice {

// The rows of `tokens` in the embedding's table, scaled, into out [tokens.size(), hidden] F32.
void Embed(ThreadPool& pool, const DecoderSpec& spec, const kernels::PackedMatrix& table,
           std::span<const int32_t> tokens, float* out);

// The cosines and sines of the step's positions, for each of the decoder's rope tables, into the
// workspace's `cos_sin`.
void FillRopeTables(const Step& step, const DecoderSpec& spec);

// Adds the workspace's `delta` to its `residual` where `add`, then writes what the next sub-layer
// reads of the first `rows` rows to `normed`, in `type`: the norm of the residual, or the residual
// itself where `norm` is empty.
void EnterSublayer(const Step& step, const std::vector<float>& norm, bool add, int64_t rows,
                   ElementType type);

// The first `rows` rows of the workspace's `delta`, which a sub-layer has written, become their
// norm, where `norm` is not empty, and are scaled by Step::residual_scale.
void LeaveSublayer(const Step& step, const std::vector<float>& norm, int64_t rows);

// `width` columns of `rows` rows, `from_stride` elements apart, to rows `to_stride` apart. They do
// not overlap.
void CopyColumns(ThreadPool& pool, const float* from, int64_t from_stride, int64_t width,
                 int64_t rows, float* to, int64_t to_stride);

// Whether logits have a scale or a soft cap.
bool ChangesLogits(const DecoderSpec& spec);
// The scale and the soft cap of `count` logits, in place.
void FinishLogits(ThreadPool& pool, const DecoderSpec& spec, float* logits, int64_t count);

}  // namespace sluice
