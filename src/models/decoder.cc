#include "models/decoder.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"
#include "models/layers/attention.h"
#include "models/layers/layer_embedding.h"
#include "models/layers/linear.h"
#include "models/layers/mlp.h"
#include "models/layers/moe.h"
#include "models/layers/residual.h"
#include "models/score_head.h"
#include "models/step_check.h"

namespace sluice {
namespace {

// What the last stage hands back of a step without rows.
constexpr char kDone = 1;

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

DecoderModel::DecoderModel(ModelConfig config, const ModelOptions& options, const RankPlace& place,
                           const RankGroups& groups, std::shared_ptr<const DecoderWeights> weights,
                           Workspace workspace, DecoderAdapters adapters)
    : Model(std::move(config)),
      options_(options),
      place_(place),
      groups_(groups),
      spec_(config_.spec),
      share_(ShareOf(spec_, place)),
      first_layer_(LayersOf(spec_, place).begin),
      stage_rows_(StageRows::For(spec_, place)),
      shared_weights_(std::move(weights)),
      workspace_(std::move(workspace)),
      adapters_(std::move(adapters)),
      ranks_(groups.stage, spec_, place, options.max_rows),
      begun_(static_cast<size_t>(place.num_stages)) {
  spec_.FitRope(options.max_context);
  if (adapters_.step == nullptr || place.num_stages == 1) return;
  for (Begun& begun : begun_) begun.adapters.reserve(static_cast<size_t>(options.max_logit_rows));
}

Result<std::unique_ptr<DecoderModel>> DecoderModel::ShareWith(const ThreadPool& pool,
                                                              const RankGroups& groups) const {
  ASSIGN_OR_RETURN(Workspace workspace, Workspace::Allocate(WorkspaceLayout::For(
                                            config_.spec, options_, pool.num_threads(),
                                            workspace_.layout().rounding, place_)));
  DecoderAdapters adapters;
  if (adapters_.slots != nullptr) {
    adapters.slots = adapters_.slots;
    ASSIGN_OR_RETURN(LoraStep step, LoraStep::Allocate(adapters.slots, options_.max_rows));
    adapters.step = std::make_unique<LoraStep>(std::move(step));
  }
  return std::make_unique<DecoderModel>(config_, options_, place_, groups, shared_weights_,
                                        std::move(workspace), std::move(adapters));
}

void DecoderModel::KeepLogitRows(const Step& step, int64_t q_width, ElementType type) {
  const StepInput& input = step.input;
  if (step.lora != nullptr) step.lora->KeepRows(input.logit_rows);
  auto* residual = reinterpret_cast<std::byte*>(workspace_.residual());
  auto* attended = static_cast<std::byte*>(workspace_.own_attended());
  const int64_t residual_bytes = spec_.hidden_size * static_cast<int64_t>(sizeof(float));
  const int64_t attended_bytes = q_width * BitsPerElement(type) / 8;
  const LayerEmbeddingRows& embeddings = step.layer_embeddings;
  const int64_t embedding_bytes =
      spec_.layer_embeddings.width * embeddings.num_layers * static_cast<int64_t>(sizeof(float));
  for (size_t i = 0; i < input.logit_rows.size();
       ++i) {  // Ascending: no row is overwritten before it has moved.
    MoveRow(residual, input.logit_rows[i], static_cast<int64_t>(i), residual_bytes);
    MoveRow(attended, input.logit_rows[i], static_cast<int64_t>(i), attended_bytes);
    if (embedding_bytes == 0) continue;
    MoveRow(reinterpret_cast<std::byte*>(embeddings.data), input.logit_rows[i],
            static_cast<int64_t>(i), embedding_bytes);
  }
}

void DecoderModel::PrepareThread(const ThreadPool& pool) {
  const bool orders_inputs =
      std::any_of(weights_.layers.begin(), weights_.layers.end(), HasInputOrder);
  kernels::ReserveLinearScratch(pool, options_.max_rows, spec_.WidestInput(), orders_inputs);
}

void DecoderModel::Enter(const Step& step) {
  ThreadPool& pool = step.pool;
  const StepInput& input = step.input;
  const auto rows = static_cast<int64_t>(input.tokens.size());
  float* residual = workspace_.residual();
  if (!place_.is_first_stage()) return Receive(rows, stage_rows_.received(), place_.stage - 1);
  if (rows == 0) return;
  if (ranks_.is_alone())
    Embed(pool, spec_, weights_.embedding, input.tokens, residual);
  else
    EmbedTogether(step);
  if (step.lora != nullptr) {
    step.lora->AddEmbedding(pool, weights_.embedding_lora, input.tokens, spec_.embedding_scale,
                            residual, spec_.hidden_size);
  }
  if (spec_.layer_embeddings.width == 0) return;
  EmbedInLayers(step, spec_, weights_);
  if (place_.num_stages > 1) HandEmbeddings(step);
}

void DecoderModel::EmbedTogether(const Step& step) {
  const StepInput& input = step.input;
  float* residual = workspace_.residual();
  Embed(step.pool, spec_, weights_.embedding, ranks_.OwnTokens(input.tokens, spec_.vocab_size),
        residual);
  ranks_.GatherEmbeddings(step.pool, input.tokens, spec_.vocab_size, spec_.hidden_size, residual,
                          workspace_.delta(), residual);
}

LayerEmbeddingRows DecoderModel::EmbeddingsInLayers(int64_t rows) {
  if (spec_.layer_embeddings.width == 0) return {};
  if (place_.is_first_stage())
    return {.data = workspace_.layer_embeddings(), .num_layers = std::ssize(spec_.layers)};
  return {.data = workspace_.residual() + rows * stage_rows_.hidden,
          .num_layers = stage_rows_.embedding_layers,
          .first = first_layer_ - stage_rows_.first_embedding_layer};
}

void DecoderModel::HandEmbeddings(const Step& step) {
  const auto rows = static_cast<int64_t>(step.input.tokens.size());
  const LayerEmbeddingRows& own = step.layer_embeddings;
  const int64_t width = stage_rows_.embedding_width;
  const int64_t handed = stage_rows_.embedding_layers * width;
  CopyColumns(step.pool, own.data + stage_rows_.first_embedding_layer * width,
              own.num_layers * width, handed, rows,
              workspace_.residual() + rows * stage_rows_.hidden, handed);
}

void DecoderModel::HandKeys(const Step& step, int64_t layer, const AttentionSpec& spec) {
  const StageRows::Keys* const keys = stage_rows_.Find(layer);
  if (keys == nullptr) return;
  const auto rows = static_cast<int64_t>(step.input.tokens.size());
  CopyColumns(step.pool, workspace_.qkv() + spec.q_width(), spec.qkv_width(), 2 * keys->width, rows,
              HandedKeys(*keys, rows), 2 * keys->width);
}

void DecoderModel::AppendReceived(const Step& step, KvCache& cache) {
  const auto rows = static_cast<int64_t>(step.input.tokens.size());
  for (size_t i = 0; i < stage_rows_.num_received; ++i) {
    const StageRows::Keys& keys = stage_rows_.keys[i];
    if (keys.user < 0) continue;
    const LayerCache layer = CacheOf(step, static_cast<size_t>(keys.user), cache);
    const float* const k = HandedKeys(keys, rows);
    kernels::AppendKv(step.pool, layer.view, layer.slices, k, k + keys.width, 2 * keys.width);
  }
}

LayerCache DecoderModel::CacheOf(const Step& step, size_t index, KvCache& cache) const {
  const auto number = static_cast<int64_t>(index);
  const KvScales& scales = weights_.layers[index].attention.kv_scales;
  LayerCache layer{cache.layer(number), step.input.SlicesOf(cache.group(number))};
  layer.view.k_scale = scales.k;
  layer.view.v_scale = scales.v;
  return layer;
}

void DecoderModel::PassOn(const Step& step, int64_t rows) {
  if (rows == 0) return groups_.all->Post(&kDone, sizeof(kDone), NextRank());
  const int64_t width = stage_rows_.handed_on(place_.is_last_stage());
  kernels::ResidualAdd(step.pool, workspace_.residual(), workspace_.delta(),
                       rows * spec_.hidden_size);
  groups_.all->Post(workspace_.residual(), rows * width * int64_t{sizeof(float)}, NextRank());
}

void DecoderModel::Receive(int64_t rows, int64_t width, int from_stage) {
  const int from = from_stage * place_.tensor_size + place_.tensor_rank;
  if (rows == 0) {
    char done = 0;
    return groups_.all->Receive(&done, sizeof(done), from);
  }
  groups_.all->Receive(workspace_.residual(), rows * width * int64_t{sizeof(float)}, from);
}

void DecoderModel::RunAttention(const Step& step, size_t index, KvCache& cache, int64_t& rows) {
  const LayerSpec& layer = share_.layers[index];
  const AttentionWeights& weights = weights_.layers[index].attention;
  const ElementType type = step.InputType(weights.output.inputs.format);
  const int64_t number = first_layer_ + static_cast<int64_t>(index);
  ranks_.EnterLayer(number);
  const LayerCache layer_cache = CacheOf(step, index, cache);
  ProjectAndAppend(step, layer.attention, weights, layer_cache);
  HandKeys(step, number, layer.attention);
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
    ranks_.GatherHeads(step.pool, type, rows, workspace_.own_attended(), workspace_.attended());
  }
  ProjectOutput(step, weights, rows);
}

int64_t DecoderModel::RunLayers(const Step& step, KvCache& cache) {
  auto rows = static_cast<int64_t>(step.input.tokens.size());
  if (rows == 0) return 0;
  for (size_t i = 0; i < share_.layers.size(); ++i) {
    if (place_.num_stages > 1) groups_.all->Progress();
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
    if (!layer.moe || !layer.moe->own_norms) GatherDelta(step, rows);
    LeaveSublayer(step, weights.mlp_norms.after, rows);
    if (spec_.layer_embeddings.width > 0) {
      AddLayerEmbedding(step, spec_, weights.embedding, static_cast<int64_t>(i), rows);
      GatherDelta(step, rows);
      LeaveSublayer(step, weights.embedding.norm, rows);
    }
    if (!weights.residual_factor.empty())
      ScaleResidual(step, weights.residual_factor.front(), rows);
  }
  return rows;
}

void DecoderModel::ComputeResults(const Step& step, int64_t rows, float* results) {
  if (spec_.head.kind != HeadSpec::Kind::kVocabulary) {
    if (place_.rank() != 0) return;  // Every rank could: nothing of it is cut.
    EnterSublayer(step, weights_.final_norm, /*add=*/place_.num_stages == 1, rows,
                  ElementType::kF32);
    const auto* normed = static_cast<const float*>(workspace_.normed());
    if (spec_.head.kind == HeadSpec::Kind::kNone) {
      std::copy_n(normed, rows * spec_.hidden_size, results);
    } else {
      ScoreRows(step.pool, spec_, weights_.scores, normed, rows, results);
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
  const kernels::RowMaxima maxima{step.input.maxima.data(), kernels::NumMaxima(own_words)};
  const bool change = step.lora != nullptr || ChangesLogits(spec_);  // behind the product
  const kernels::RowMaxima of_product = change ? kernels::RowMaxima{} : maxima;
  if (spec_.tied_head) {
    kernels::Linear(step.pool, weights_.embedding, last, own, own_words, nullptr, of_product);
  } else {
    RunLinear(step, weights_.head, last, own, own_words, /*first_row=*/0, of_product);
  }
  if (step.lora != nullptr)
    step.lora->Add(step.pool, weights_.head_lora, last, /*first_row=*/0, own, own_words);
  FinishLogits(step.pool, spec_, own, rows * own_words);
  if (change && maxima.data != nullptr)
    kernels::FindMaxima(step.pool, own, own_words, rows, own_words, maxima);
  if (!ranks_.is_alone()) ranks_.GatherLogits(step.pool, rows, own, results);
}

Step DecoderModel::StepOf(ThreadPool& pool, const StepInput& input) {
  return {.pool = pool,
          .input = input,
          .workspace = workspace_,
          .options = options_,
          .hidden_size = spec_.hidden_size,
          .rope_width = spec_.LargestHeadDim(),
          .norm_eps = spec_.norm_eps,
          .residual_scale = spec_.residual_scale,
          .splits_inputs = spec_.SplitsInputs(options_.compute_type),
          .ranks = ranks_.is_alone() ? nullptr : &ranks_,
          .lora = input.adapters.empty() ? nullptr : adapters_.step.get(),
          .layer_embeddings = EmbeddingsInLayers(std::ssize(input.tokens))};
}

void DecoderModel::Begin(ThreadPool& pool, const StepInput& input, KvCache& cache, float* results) {
  CheckStepInput(spec_, options_, input, cache);
  const bool is_staged = place_.num_stages > 1;
  CHECK_LT(num_begun_ - num_finished_, place_.num_stages);
  const int64_t index = num_begun_++ % place_.num_stages;
  Begun& begun = begun_[static_cast<size_t>(index)];
  if (is_staged) {
    begun.results = results;
    begun.rows = std::ssize(input.logit_rows);
    begun.adapters.clear();
    workspace_.ChooseResidual(index);
    // What was handed on from there has been received.
    groups_.all->AwaitPosted(NextRank(), place_.num_stages - 1);
  }
  const Step step = StepOf(pool, input);
  if (step.lora != nullptr) {
    step.lora->Begin(input.SlicesOf(0), input.adapters);
    if (is_staged && place_.is_first_stage())
      step.lora->AppendAdaptersOf(input.logit_rows, begun.adapters);
  }
  Enter(step);
  AppendReceived(step, cache);
  FillRopeTables(step, spec_);
  const int64_t rows = RunLayers(step, cache);
  if (is_staged) {
    PassOn(step, rows);
  } else if (rows > 0) {
    ComputeResults(step, rows, results);
  }
}

void DecoderModel::Finish(ThreadPool& pool) {
  CHECK_LT(num_finished_, num_begun_);
  const int64_t index = num_finished_++ % place_.num_stages;
  if (place_.num_stages == 1 || !place_.is_first_stage()) return;
  const Begun& begun = begun_[static_cast<size_t>(index)];
  workspace_.ChooseResidual(index);
  groups_.all->AwaitPosted(NextRank(), num_begun_ - num_finished_);
  Receive(begun.rows, spec_.hidden_size, place_.num_stages - 1);
  if (begun.rows == 0) return;
  const StepInput input;
  Step step = StepOf(pool, input);
  if (!begun.adapters.empty()) {
    step.lora = adapters_.step.get();
    step.lora->BeginRows(begun.adapters);
  }
  ComputeResults(step, begun.rows, begun.results);
}

}  // namespace sluice
