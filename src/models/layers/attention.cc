#include "models/layers/attention.h"

#include <cmath>

#include "kernels/attention.h"
#include "kernels/head_rms_norm.h"
#include "kernels/linear.h"
#include "kernels/rope.h"

namespace sluice {

void ProjectAndAppend(const Step& step, const AttentionSpec& spec, const AttentionWeights& weights,
                      const kernels::KvCacheView& cache) {
  const auto rows = static_cast<int64_t>(step.input.tokens.size());
  const int64_t width = spec.qkv_width();
  float* q = step.workspace.qkv();
  float* k = q + spec.q_width();
  float* v = k + spec.kv_width();
  kernels::Linear(step.pool, weights.qkv,
                  DenseRows(step.workspace.normed(), step.compute_type, rows, weights.qkv.cols), q,
                  width, BiasOrNull(weights.qkv_bias));
  if (spec.qk_norm) {
    kernels::HeadRmsNorm(step.pool, q, width, weights.q_norm.data(), step.norm_eps, rows,
                         spec.num_heads, spec.head_dim);
    kernels::HeadRmsNorm(step.pool, k, width, weights.k_norm.data(), step.norm_eps, rows,
                         spec.num_kv_heads, spec.head_dim);
  }
  // The heads of k follow those of q in a row.
  kernels::ApplyRope(step.pool, q, width, rows, spec.num_heads + spec.num_kv_heads, spec.head_dim,
                     spec.rope_style, step.workspace.cos_sin());
  kernels::AppendKv(step.pool, cache, step.input.slices, k, v, width);
}

void Attend(const Step& step, const AttentionSpec& spec, const kernels::KvCacheView& cache) {
  const float scale = 1 / std::sqrt(static_cast<float>(spec.head_dim));
  kernels::Attention(step.pool, cache, step.input.slices, kernels::AttentionSpan(),
                     step.workspace.qkv(), spec.qkv_width(), spec.num_heads, scale,
                     step.workspace.attended(), step.compute_type, step.workspace.scratch());
}

void ProjectOutput(const Step& step, const AttentionSpec& spec, const AttentionWeights& weights,
                   int64_t rows) {
  kernels::Linear(step.pool, weights.output,
                  DenseRows(step.workspace.attended(), step.compute_type, rows, spec.q_width()),
                  step.workspace.delta(), weights.output.rows, BiasOrNull(weights.output_bias));
}

}  // namespace sluice
