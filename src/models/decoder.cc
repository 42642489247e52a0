#include "models/decoder.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/linear.h"
#include "kernels/rms_norm.h"
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

// scores[m, n] = scores' weights [n, :] . x[m, :], in F64.
void Score(ThreadPool& pool, const DecoderSpec& spec, const std::vector<float>& weights,
           const float* x, int64_t rows, float* scores) {
  const int64_t hidden_size = spec.hidden_size, num_scores = spec.head.num_scores;
  pool.ParallelFor(rows * num_scores, /*grain=*/16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float* row = x + i / num_scores * hidden_size;
      const float* weight = weights.data() + i % num_scores * hidden_size;
      scores[i] = static_cast<float>(std::inner_product(row, row + hidden_size, weight, 0.0));
    }
  });
}

}  // namespace

DecoderModel::DecoderModel(ModelConfig config, const ModelOptions& options, const RankPlace& place,
                           const RankGroups& groups, std::shared_ptr<const DecoderWeights> weights,
                           Workspace workspace, DecoderAdapters adapters)
    : Model(std::move(config)),
      options_(options),
      place_(place),
      groups_(groups),
      spec_(config_.spec),
      share_(ShareOf(spec_, place)),
      shared_weights_(std::move(weights)),
      workspace_(std::move(workspace)),
      adapters_(std::move(adapters)),
      ranks_(groups.stage, spec_, place) {
  spec_.FitRope(options.max_context);
  if (!ranks_.is_alone()) own_tokens_.reserve(static_cast<size_t>(options.max_rows));
}

Result<std::unique_ptr<DecoderModel>> DecoderModel::ShareWith(const ThreadPool& pool,
                                                              const RankGroups& groups) const {
  ASSIGN_OR_RETURN(Workspace workspace, Workspace::Allocate(WorkspaceLayout::For(
                                            config_.spec, options_, pool.num_threads(),
                                            workspace_.layout().rounding, place_)));
  return std::make_unique<DecoderModel>(config_, options_, place_, groups, shared_weights_,
                                        std::move(workspace));
}

void DecoderModel::KeepLogitRows(const Step& step, int64_t q_width, ElementType type) {
  const StepInput& input = step.input;
  if (step.lora != nullptr) step.lora->KeepRows(input.logit_rows);
  auto* residual = reinterpret_cast<std::byte*>(workspace_.residual());
  auto* attended = static_cast<std::byte*>(workspace_.own_attended());
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

void DecoderModel::Begin(const Step& step) {
  ThreadPool& pool = step.pool;
  const StepInput& input = step.input;
  const auto rows = static_cast<int64_t>(input.tokens.size());
  float* residual = workspace_.residual();
  if (!place_.is_first_stage()) return Receive(rows, place_.stage - 1);
  if (ranks_.is_alone()) {
    Embed(pool, spec_, weights_.embedding, input.tokens, residual);
    if (step.lora != nullptr) {
      step.lora->AddEmbedding(pool, weights_.embedding_lora, input.tokens, spec_.embedding_scale,
                              residual, spec_.hidden_size);
    }
    return;
  }
  const RowRange words = ranks_.words();
  own_tokens_.clear();
  for (const int32_t token : input.tokens) {
    if (token >= words.begin && token < words.end)
      own_tokens_.push_back(token - static_cast<int32_t>(words.begin));
  }
  Embed(pool, spec_, weights_.embedding, own_tokens_, residual);
  ranks_.GatherEmbeddings(pool, input.tokens, residual, workspace_.delta(), residual);
}

void DecoderModel::PassOn(const Step& step, int64_t rows) {
  if (place_.num_stages == 1) return;
  kernels::ResidualAdd(step.pool, workspace_.residual(), workspace_.delta(),
                       rows * spec_.hidden_size);
  const int to_stage = (place_.stage + 1) % place_.num_stages;
  groups_.all->Send(workspace_.residual(), rows * spec_.hidden_size * int64_t{sizeof(float)},
                    to_stage * place_.tensor_size + place_.tensor_rank);
}

void DecoderModel::Receive(int64_t rows, int from_stage) {
  groups_.all->Receive(workspace_.residual(), rows * spec_.hidden_size * int64_t{sizeof(float)},
                       from_stage * place_.tensor_size + place_.tensor_rank);
}

void DecoderModel::RunAttention(const Step& step, size_t index, KvCache& cache, int64_t& rows) {
  const LayerSpec& layer = share_.layers[index];
  const AttentionWeights& weights = weights_.layers[index].attention;
  const ElementType type = step.InputType(weights.output.inputs.format);
  const auto number = static_cast<int64_t>(index);
  LayerCache layer_cache{cache.layer(number), step.input.SlicesOf(cache.group(number))};
  layer_cache.view.k_scale = weights.kv_scales.k;
  layer_cache.view.v_scale = weights.kv_scales.v;
  ProjectAndAppend(step, layer.attention, weights, layer_cache);
  if (is_last_layer(index) && step.input.logit_rows.empty()) {
    rows = 0;
    return;
  }
  Attend(step, layer.attention, weights, layer_cache);
  if (is_last_layer(index)) {
    // After the last attention no row depends on another: the rest is computed for the wanted rows
    // alone.
    KeepLogitRows(step, layer.attention.q_width(), type);
    rows = static_cast<int64_t>(step.input.logit_rows.size());
  }
  if (step.ranks != nullptr) {
    ranks_.GatherHeads(step.pool, spec_.layers.front().attention, type, rows,
                       workspace_.own_attended(), workspace_.attended());
  }
  ProjectOutput(step, weights, rows);
}

void DecoderModel::GatherDelta(const Step& step, int64_t rows) {
  if (step.ranks == nullptr) return;
  ranks_.GatherRowsOf(step.pool, spec_.hidden_size, ElementType::kF32, rows, workspace_.own_delta(),
                      workspace_.delta());
}

int64_t DecoderModel::RunLayers(const Step& step, KvCache& cache) {
  auto rows = static_cast<int64_t>(step.input.tokens.size());
  for (size_t i = 0; i < share_.layers.size(); ++i) {
    const LayerSpec& layer = share_.layers[i];
    const LayerWeights& weights = weights_.layers[i];
    EnterSublayer(step, weights.attention_norms.before, /*add=*/i > 0, rows,
                  step.InputType(weights.attention.qkv.inputs.format));
    RunAttention(step, i, cache, rows);
    if (rows == 0) return 0;
    GatherDelta(step, rows);
    LeaveSublayer(step, weights.attention_norms.after, rows);
    EnterSublayer(step, weights.mlp_norms.before, /*add=*/true, rows,
                  step.InputType(weights.mlp.gate_up.inputs.format));
    if (layer.moe)
      Moe(step, layer, weights, rows);
    else
      Mlp(step, layer.mlp, weights.mlp, rows);
    GatherDelta(step, rows);
    LeaveSublayer(step, weights.mlp_norms.after, rows);
  }
  return rows;
}

void DecoderModel::ComputeResults(const Step& step, int64_t rows, float* results) {
  if (spec_.head.kind != HeadSpec::Kind::kVocabulary) {
    EnterSublayer(step, weights_.final_norm, /*add=*/true, rows, ElementType::kF32);
    const auto* normed = static_cast<const float*>(workspace_.normed());
    if (spec_.head.kind == HeadSpec::Kind::kNone) {
      std::copy_n(normed, rows * spec_.hidden_size, results);
    } else {
      Score(step.pool, spec_, weights_.scores, normed, rows, results);
    }
    return;
  }
  // Nothing chooses by the logits' inputs: they are not split.
  const ElementType head_type =
      RoundingOf(weights_.head.inputs.format, options_) == InputRounding::kNone
          ? options_.compute_type
          : ElementType::kF32;
  EnterSublayer(step, weights_.final_norm, /*add=*/place_.num_stages == 1, rows, head_type);
  const kernels::Activations last =
      DenseRows(workspace_.normed(), head_type, rows, spec_.hidden_size);
  float* const own = ranks_.is_alone() ? results : workspace_.own_logits();
  const int64_t own_words = ranks_.words().size();
  if (spec_.tied_head)
    kernels::Linear(step.pool, weights_.embedding, last, own, own_words);
  else
    RunLinear(step, weights_.head, last, own, own_words);
  if (step.lora != nullptr)
    step.lora->Add(step.pool, weights_.head_lora, last, /*first_row=*/0, own, own_words);
  FinishLogits(step.pool, spec_, own, rows * own_words);
  if (!ranks_.is_alone()) ranks_.GatherLogits(step.pool, rows, own, results);
}

void DecoderModel::Forward(ThreadPool& pool, const StepInput& input, KvCache& cache,
                           float* results) {
  CheckStepInput(spec_, options_, input, cache);
  if (input.tokens.empty()) return;
  const Step step{.pool = pool,
                  .input = input,
                  .workspace = workspace_,
                  .options = options_,
                  .hidden_size = spec_.hidden_size,
                  .norm_eps = spec_.norm_eps,
                  .residual_scale = spec_.residual_scale,
                  .splits_inputs = spec_.SplitsInputs(options_.compute_type),
                  .ranks = ranks_.is_alone() ? nullptr : &ranks_,
                  .lora = input.adapters.empty() ? nullptr : adapters_.step.get()};
  if (step.lora != nullptr) step.lora->Begin(input.SlicesOf(0), input.adapters);
  Begin(step);
  FillRopeTables(step, spec_);
  const int64_t rows = RunLayers(step, cache);
  const auto logit_rows = static_cast<int64_t>(input.logit_rows.size());
  if (rows == 0) return;
  PassOn(step, rows);
  if (!place_.is_first_stage() || logit_rows == 0) return;
  if (place_.num_stages > 1) Receive(logit_rows, place_.num_stages - 1);
  ComputeResults(step, logit_rows, results);
}

}  // namespace sluice
