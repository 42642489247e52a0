#include "models/layers/layer_embedding.h"

#include <cmath>
#include <iterator>
#include <span>

#include "kernels/embedding.h"
#include "kernels/gelu_mul.h"
#include "kernels/rms_norm.h"
#include "models/layers/linear.h"
#include "models/layers/residual.h"
#include "models/layers/tensor_ranks.h"

namespace sluice {
namespace {

constexpr int64_t kElementGrain = 4096;

// The table's rows of the step's tokens, of all layers, to `out`. By way of `layer_lookups` where
// ranks have divided them.
void LookUp(const Step& step, const DecoderSpec& spec, const DecoderWeights& weights, float* out) {
  const std::span<const int32_t> tokens = step.input.tokens;
  const kernels::PackedMatrix& table = weights.layer_embeddings;
  if (step.ranks == nullptr) return kernels::Embedding(step.pool, table, tokens, out);
  const int64_t vocab_size = spec.layer_embeddings.vocab_size;
  kernels::Embedding(step.pool, table, step.ranks->OwnTokens(tokens, vocab_size), out);
  step.ranks->GatherEmbeddings(step.pool, tokens, vocab_size, table.cols, out,
                               step.workspace.layer_lookups(), out);
}

// The projection of the rows of `residual`, of all layers.
float* Project(const Step& step, const DecoderSpec& spec, const LinearWeights& weights) {
  const Workspace& workspace = step.workspace;
  const auto rows = static_cast<int64_t>(step.input.tokens.size());
  const ElementType type = step.InputType(weights.inputs.format);
  EnterSublayer(step, /*norm=*/{}, /*add=*/false, rows, type);
  RunLinear(step, weights, DenseRows(workspace.normed(), type, rows, spec.hidden_size),
            workspace.own_projected(), weights.matrix.rows);
  float* const projected = workspace.layer_lookups();
  if (step.ranks != nullptr) {
    step.ranks->GatherRowsOf(step.pool, spec.layer_embeddings.width * std::ssize(spec.layers),
                             ElementType::kF32, rows, workspace.own_projected(), projected);
  }
  return projected;
}

}  // namespace

void EmbedInLayers(const Step& step, const DecoderSpec& spec, const DecoderWeights& weights) {
  const auto rows = static_cast<int64_t>(step.input.tokens.size());
  const int64_t width = spec.layer_embeddings.width, all = width * std::ssize(spec.layers);
  float* const embeddings = step.layer_embeddings.data;
  LookUp(step, spec, weights, embeddings);
  float* const projected = Project(step, spec, weights.layer_projection);
  const float projection_scale = 1 / std::sqrt(static_cast<float>(spec.hidden_size));
  step.pool.ParallelFor(rows * all, kElementGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) projected[i] *= projection_scale;
  });
  kernels::HeadRmsNorm(step.pool, projected, all, weights.layer_norm.data(), spec.norm_eps, rows,
                       static_cast<int>(spec.layers.size()), static_cast<int>(width));
  const float own_scale = std::sqrt(static_cast<float>(width));
  const float sum_scale = std::sqrt(0.5f);
  step.pool.ParallelFor(rows * all, kElementGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      embeddings[i] = (projected[i] + embeddings[i] * own_scale) * sum_scale;
  });
}

void AddLayerEmbedding(const Step& step, const DecoderSpec& spec,
                       const LayerEmbeddingWeights& weights, int64_t index, int64_t rows) {
  const Workspace& workspace = step.workspace;
  const LayerEmbeddingRows& embeddings = step.layer_embeddings;
  const int64_t width = spec.layer_embeddings.width;
  const RowRange own = step.ranks != nullptr ? step.ranks->RowsOf(width) : RowRange{0, width};
  const ElementType type = step.InputType(weights.gate.inputs.format);
  EnterSublayer(step, /*norm=*/{}, /*add=*/true, rows, type);
  // Beside each other, as gate and up of an MLP.
  float* gates = workspace.layer_gates();
  RunLinear(step, weights.gate, DenseRows(workspace.normed(), type, rows, spec.hidden_size), gates,
            2 * own.size());
  CopyColumns(step.pool, embeddings.data + (embeddings.first + index) * width + own.begin,
              embeddings.num_layers * width, own.size(), rows, gates + own.size(), 2 * own.size());
  const ElementType gated_type = step.InputType(weights.projection.inputs.format);
  kernels::GeluMul(step.pool, gates, rows, own.size(), workspace.own_gated(), gated_type);
  if (step.ranks != nullptr) {
    step.ranks->GatherRowsOf(step.pool, width, gated_type, rows, workspace.own_gated(),
                             workspace.normed());
  }
  RunLinear(step, weights.projection, DenseRows(workspace.normed(), gated_type, rows, width),
            workspace.own_delta(), weights.projection.matrix.rows);
}

void ScaleResidual(const Step& step, float factor, int64_t rows) {
  float* residual = step.workspace.residual();
  float* delta = step.workspace.delta();
  step.pool.ParallelFor(rows * step.hidden_size, kElementGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      residual[i] *= factor;
      delta[i] *= factor;
    }
  });
}

}  // namespace sluice
