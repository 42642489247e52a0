#include "models/decoder.h"

#include <algorithm>
#include <cstring>

#include "kernels/linear.h"
#include "models/layers/attention.h"
#include "models/layers/linear.h"
#include "models/layers/mlp.h"
#include "models/layers/moe.h"
#include "models/layers/residual.h"
#include "models/step_check.h"

namespace sluice {
namespace {

void MoveRow(std::byte* data, int64_t from, int64_t to, int64_t row_bytes) {
  if (from != to)
    std::memcpy(data + to * row_bytes, data + from * row_bytes, static_cast<size_t>(row_bytes));
}

bool HasInputOrder(const LayerWeights& layer) {
  const auto has = [](const kernels::PackedMatrix& matrix) {
    return matrix.format.has_input_order;
  };
  const auto any = [&](const ExpertWeights& experts) {
    return std::any_of(experts.matrices.begin(), experts.matrices.end(), has);
  };
  return has(layer.attention.qkv.matrix) || has(layer.attention.output.matrix) ||
         has(layer.mlp.gate_up.matrix) || has(layer.mlp.down.matrix) || any(layer.moe.gate_up) ||
         any(layer.moe.down);
}

}  // namespace

void DecoderModel::KeepLogitRows(const StepInput& input, int64_t q_width, ElementType type) {
  auto* residual = reinterpret_cast<std::byte*>(workspace_.residual());
  auto* attended = static_cast<std::byte*>(workspace_.attended());
  const int64_t residual_bytes = spec_.hidden_size * static_cast<int64_t>(sizeof(float));
  const int64_t attended_bytes = q_width * BitsPerElement(type) / 8;
  for (size_t i = 0; i < input.logit_rows.size();
       ++i) {  // Ascending: no row is overwritten before it has moved.
    MoveRow(residual, input.logit_rows[i], static_cast<int64_t>(i), residual_bytes);
    MoveRow(attended, input.logit_rows[i], static_cast<int64_t>(i), attended_bytes);
  }
}

void DecoderModel::PrepareThread(const ThreadPool& pool) {
  const bool orders_inputs =
      std::any_of(weights_.layers.begin(), weights_.layers.end(), HasInputOrder);
  kernels::ReserveLinearScratch(pool, options_.max_rows, spec_.WidestInput(), orders_inputs);
}

void DecoderModel::Forward(ThreadPool& pool, const StepInput& input, KvCache& cache,
                           float* logits) {
  CheckStepInput(spec_, options_, input, cache);
  auto rows = static_cast<int64_t>(input.tokens.size());
  if (rows == 0) return;
  const int64_t hidden_size = spec_.hidden_size;
  const Step step{.pool = pool,
                  .input = input,
                  .workspace = workspace_,
                  .options = options_,
                  .hidden_size = hidden_size,
                  .norm_eps = spec_.norm_eps,
                  .splits_inputs = spec_.SplitsInputs(options_.compute_type)};
  Embed(pool, spec_, weights_.embedding, input.tokens, workspace_.residual());
  FillRopeTables(step, spec_);
  for (size_t i = 0; i < spec_.layers.size(); ++i) {
    const LayerSpec& layer = spec_.layers[i];
    const LayerWeights& weights = weights_.layers[i];
    const auto index = static_cast<int64_t>(i);
    LayerCache layer_cache{cache.layer(index), input.SlicesOf(cache.group(index))};
    layer_cache.view.k_scale = weights.attention.kv_scales.k;
    layer_cache.view.v_scale = weights.attention.kv_scales.v;
    EnterSublayer(step, weights.attention_norms.before, /*add=*/i > 0, rows,
                  step.InputType(weights.attention.qkv.inputs.format));
    ProjectAndAppend(step, layer.attention, weights.attention, layer_cache);
    const bool is_last = i + 1 == spec_.layers.size();
    if (is_last && input.logit_rows.empty()) return;
    Attend(step, layer.attention, weights.attention, layer_cache);
    if (is_last) {
      // After the last attention no row depends on another: the rest is computed for the wanted
      // rows alone.
      KeepLogitRows(input, layer.attention.q_width(),
                    step.InputType(weights.attention.output.inputs.format));
      rows = static_cast<int64_t>(input.logit_rows.size());
    }
    ProjectOutput(step, layer.attention, weights.attention, rows);
    LeaveSublayer(step, weights.attention_norms.after, rows);
    EnterSublayer(step, weights.mlp_norms.before, /*add=*/true, rows,
                  step.InputType(weights.mlp.gate_up.inputs.format));
    if (layer.moe)
      Moe(step, layer, weights, rows);
    else
      Mlp(step, layer.mlp, weights.mlp, rows);
    LeaveSublayer(step, weights.mlp_norms.after, rows);
  }
  // Nothing chooses by the logits' inputs: they are not split.
  const ElementType head_type =
      RoundingOf(weights_.head.inputs.format, options_) == InputRounding::kNone
          ? options_.compute_type
          : ElementType::kF32;
  EnterSublayer(step, weights_.final_norm, /*add=*/true, rows, head_type);
  const kernels::Activations last = DenseRows(workspace_.normed(), head_type, rows, hidden_size);
  if (spec_.tied_head)
    kernels::Linear(pool, weights_.embedding, last, logits, spec_.vocab_size);
  else
    RunLinear(step, weights_.head, last, logits, spec_.vocab_size);
  FinishLogits(pool, spec_, logits, rows * spec_.vocab_size);
}

}  // namespace sluice
