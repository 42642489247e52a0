#include "models/layers/attention.h"

#include <cmath>

#include "kernels/attention.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "models/layers/linear.h"
#include "models/layers/residual.h"
#include "models/layers/tensor_ranks.h"

namespace sluice {

namespace {

// q of every row times log(floor((position + first) / floor_scale) + 1) * attn_scale + 1.
// Source: transformers modeling_llama4.py Llama4TextAttention, in F32.
void TuneTemperature(const Step& step, const AttentionSpec& spec, float* q) {
  const auto floor_scale = static_cast<float>(spec.temperature_tuning->floor_scale);
  const auto attn_scale = static_cast<float>(spec.temperature_tuning->attn_scale);
  const auto first = static_cast<float>(spec.temperature_tuning->first);
  const auto rows = static_cast<int64_t>(step.input.positions.size());
  step.pool.ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const auto position = static_cast<float>(step.input.positions[static_cast<size_t>(row)]);
      const float factor =
          std::log1p(std::floor((position + first) / floor_scale)) * attn_scale + 1.0f;
      float* values = q + row * spec.qkv_width();
      for (int64_t i = 0; i < spec.q_width(); ++i) values[i] *= factor;
    }
  });
}

// Over all heads of q and over all of k, of which this rank holds some: every rank norms whole
// rows, and keeps its own columns. `q`: rows of the rank's q, k and v.
void NormWholeRows(const Step& step, const AttentionSpec& spec, const AttentionWeights& weights,
                   float* q) {
  const auto rows = static_cast<int64_t>(step.input.tokens.size());
  const int64_t stride = spec.qkv_width();
  float* const own = step.workspace.own_qk();
  float* const whole = step.workspace.whole_qk();
  const auto norm = [&](const std::vector<float>& weight, const RowRange& columns, float* x) {
    const auto width = static_cast<int64_t>(weight.size());
    kernels::HeadRmsNorm(step.pool, whole, width, weight.data(), step.norm_eps, rows,
                         /*num_heads=*/1, static_cast<int>(width));
    CopyColumns(step.pool, whole + columns.begin, width, columns.size(), rows, x, stride);
  };
  CopyColumns(step.pool, q, stride, spec.q_width(), rows, own, spec.q_width());
  step.ranks->GatherQueries(step.pool, rows, own, whole);
  norm(weights.q_norm, step.ranks->q_columns(), q);
  float* const k = q + spec.q_width();
  const int64_t given = step.ranks->given_k_columns().size();
  CopyColumns(step.pool, k, stride, given, rows, own, given);
  step.ranks->GatherKeys(step.pool, rows, own, whole);
  norm(weights.k_norm, step.ranks->k_columns(), k);
}

// Over each head, or over all heads of q and of k as if they were one.
void NormQk(const Step& step, const AttentionSpec& spec, const AttentionWeights& weights,
            float* q) {
  const auto rows = static_cast<int64_t>(step.input.tokens.size());
  const bool whole = spec.qk_norm == QkNorm::kWholeWidth;
  if (whole && step.ranks != nullptr) return NormWholeRows(step, spec, weights, q);
  const auto norm = [&](float* x, const std::vector<float>& weight, int num_heads) {
    kernels::HeadRmsNorm(step.pool, x, spec.qkv_width(), weight.data(), step.norm_eps, rows,
                         whole ? 1 : num_heads, spec.head_dim * (whole ? num_heads : 1));
  };
  norm(q, weights.q_norm, spec.num_heads);
  if (spec.has_own_kv()) norm(q + spec.q_width(), weights.k_norm, spec.num_kv_heads);
}

// v of every row, where it is k as projected, and its norm.
void MakeValues(const Step& step, const AttentionSpec& spec, const AttentionWeights& weights,
                float* k) {
  const auto rows = static_cast<int64_t>(step.input.tokens.size());
  float* v = k + spec.kv_width();
  if (spec.values_are_keys) {
    CopyColumns(step.pool, k, spec.qkv_width(), spec.kv_width(), rows, v, spec.qkv_width());
  }
  if (spec.norms_values) {
    kernels::HeadRmsNorm(step.pool, v, spec.qkv_width(), weights.v_norm.data(), step.norm_eps, rows,
                         spec.num_kv_heads, spec.head_dim);
  }
}

}  // namespace

void ProjectAndAppend(const Step& step, const AttentionSpec& spec, const AttentionWeights& weights,
                      const LayerCache& cache) {
  const auto rows = static_cast<int64_t>(step.input.tokens.size());
  const int64_t width = spec.qkv_width();
  float* q = step.workspace.qkv();
  float* k = q + spec.q_width();
  float* v = k + spec.kv_width();
  RunLinear(step, weights.qkv,
            DenseRows(step.workspace.normed(), step.InputType(weights.qkv.inputs.format), rows,
                      weights.qkv.matrix.cols),
            q, width);
  if (spec.has_own_kv()) MakeValues(step, spec, weights, k);
  if (spec.qk_norm == QkNorm::kBeforeRope || spec.qk_norm == QkNorm::kWholeWidth)
    NormQk(step, spec, weights, q);
  if (spec.rope) {
    // The heads of k follow those of q in a row.
    const int num_heads = spec.num_heads + (spec.has_own_kv() ? spec.num_kv_heads : 0);
    kernels::ApplyRope(step.pool, q, width, rows, num_heads, spec.head_dim, spec.rotated(),
                       spec.rope_style,
                       step.workspace.cos_sin() + spec.rope_table * rows * step.rope_width);
  }
  if (spec.qk_norm == QkNorm::kAfterRopeUnweighted) NormQk(step, spec, weights, q);
  if (spec.temperature_tuning) TuneTemperature(step, spec, q);
  if (!spec.has_own_kv()) return;
  if (step.observer != nullptr) {
    const auto seen = [&](const float* values) {
      return kernels::Activations{.data = values,
                                  .type = ElementType::kF32,
                                  .rows = rows,
                                  .cols = spec.kv_width(),
                                  .stride = width};
    };
    step.observer->OnKeysAndValues(seen(k), seen(v));
  }
  kernels::AppendKv(step.pool, cache.view, cache.slices, k, v, width);
}

void Attend(const Step& step, const AttentionSpec& spec, const AttentionWeights& weights,
            const LayerCache& cache) {
  const ElementType type = step.InputType(weights.output.inputs.format);
  // Where the layer behind rounds its inputs itself, to integers, an error of BF16 would move many
  // of them to the other side of a tie; and where scores are not scaled down, the softmax enlarges
  // it.
  const bool scales_down = spec.softmax_scale() * std::sqrt(static_cast<float>(spec.head_dim)) < 2;
  const kernels::AttentionScores scores{.scale = spec.softmax_scale(),
                                        .soft_cap = spec.soft_cap,
                                        .sinks = BiasOrNull(weights.sinks),
                                        .bf16_products = type == ElementType::kBF16 && scales_down};
  kernels::Attention(step.pool, cache.view, cache.slices, spec.span, step.workspace.qkv(),
                     spec.qkv_width(), spec.num_heads, scores, step.workspace.own_attended(), type,
                     step.workspace.scratch());
}

void ProjectOutput(const Step& step, const AttentionWeights& weights, int64_t rows) {
  RunLinear(step, weights.output,
            DenseRows(step.workspace.attended(), step.InputType(weights.output.inputs.format), rows,
                      weights.output.matrix.cols),
            step.workspace.own_delta(), weights.output.matrix.rows);
}

}  // namespace sluice
