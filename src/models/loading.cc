// Implements PlanModel and LoadModel, for a whole model and for a rank's share.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/check.h"
#include "kernels/linear.h"
#include "models/encoder/encoder_model.h"
#include "models/encoder/encoder_weights.h"
#include "models/input_rounding.h"
#include "models/kv_layout.h"
#include "models/lora_layout.h"
#include "models/parallel_model.h"
#include "models/program/buffers.h"
#include "models/program/build_decoder.h"
#include "models/score_head.h"
#include "models/share.h"
#include "models/weight_loader.h"

namespace sluice {
namespace {

Status CheckOptions(const ModelOptions& options) {
  const auto is_float = [](ElementType type) {
    return type == ElementType::kBF16 || type == ElementType::kF32;
  };
  if (!is_float(options.compute_type)) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("compute type {} is not supported; supported are BF16 and F32",
                            ElementTypeName(options.compute_type)),
                "dtype");
  }
  if (!is_float(options.kv_type) && options.kv_type != ElementType::kF16 &&
      options.kv_type != ElementType::kF8E4M3) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("KV cache type {} is not supported; supported are BF16, F16, F32 and F8_E4M3",
                    ElementTypeName(options.kv_type)),
        "kv_cache_dtype");
  }
  CHECK(options.block_size > 0 && options.max_rows > 0 && options.max_slices > 0 &&
        options.max_context > 0 && options.max_logit_rows > 0);
  return {};
}

// Checks the block size for compressed attention. A block must consist of whole groups of tokens
// that form entries, or be a part of a group. An indexer reads its keys sequentially, so its
// entries must fill the blocks.
Status CheckBlocks(const DecoderSpec& spec, const ModelOptions& options) {
  for (const LayerSpec& layer : spec.layers) {
    const auto& latent = layer.attention.latent;
    if (!latent || !latent->makes_entries()) continue;
    const int rate = latent->compressed->rate, block_size = options.block_size;
    const bool is_part = rate % block_size == 0 && !latent->indexer;
    if (block_size % rate == 0 || is_part) continue;
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--block-size {}: each compressed cache entry covers {} tokens; choose "
                            "a multiple of that number{}",
                            block_size, rate, latent->indexer ? "" : ", or a divisor"),
                "block_size");
  }
  return {};
}

// Returns the largest InputRounding of any layer.
InputRounding LoadedRounding(const ParameterList& parameters, const ModelOptions& options) {
  InputRounding most = InputRounding::kNone;
  for (const MatrixParameter& matrix : parameters.matrices) {
    if (matrix.inputs != nullptr) most = std::max(most, RoundingOf(matrix.inputs->format, options));
  }
  return most;
}

// Returns the parameters that a step of one token reads: all except experts that are not chosen.
ParameterList ReadByOneToken(const DecoderSpec& spec, bool is_drafter,
                             const ParameterList& parameters, const DecoderWeights& weights) {
  std::set<const kernels::PackedMatrix*> unread;
  if (spec.LoadsHead() || spec.head.kind != HeadSpec::Kind::kVocabulary || is_drafter)
    unread.insert(&weights.embedding);
  unread.insert(&weights.layer_embeddings);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const auto top_k = static_cast<size_t>(spec.layers[i].moe ? spec.layers[i].moe->top_k : 0);
    for (const ExpertWeights* experts :
         {&weights.layers[i].moe.gate_up, &weights.layers[i].moe.down}) {
      for (size_t e = top_k; e < experts->matrices.size(); ++e)
        unread.insert(&experts->matrices[e]);
    }
  }
  ParameterList read = parameters;
  std::erase_if(read.matrices,
                [&](const MatrixParameter& matrix) { return unread.contains(matrix.target); });
  return read;
}

// Like LoadedRounding, but from config.json only.
InputRounding PlannedRounding(const ParameterList& parameters, const QuantizationScheme& scheme,
                              const ModelOptions& options) {
  InputRounding most = InputRounding::kNone;
  for (const MatrixParameter& matrix : parameters.matrices) {
    if (matrix.inputs == nullptr) continue;
    for (const ParameterPart& part : matrix.parts)
      most = std::max(most, RoundingOf(scheme.PlannedActivations(part.name), options));
  }
  return most;
}

// Checks that all experts of a layer have the same format, because one product computes them.
Status CheckExperts(const DecoderWeights& weights) {
  for (size_t layer = 0; layer < weights.layers.size(); ++layer) {
    for (const ExpertWeights* experts :
         {&weights.layers[layer].moe.gate_up, &weights.layers[layer].moe.down}) {
      for (size_t e = 1; e < experts->matrices.size(); ++e) {
        if (experts->matrices[e].format == experts->matrices[0].format &&
            experts->inputs[e].format == experts->inputs[0].format) {
          continue;
        }
        return Fail(
            ErrorCode::kUnsupported,
            fmt::format("layer {}: expert {} is stored in a different format ({}) than expert "
                        "0 ({}); all experts of a layer must have one format",
                        layer, e, ElementTypeName(experts->matrices[e].format.type),
                        ElementTypeName(experts->matrices[0].format.type)));
      }
    }
  }
  return {};
}

}  // namespace

Status CheckTensors(const ModelConfig& config, const Checkpoint& checkpoint) {
  if (IsEncoder(config.architecture)) {
    ASSIGN_OR_RETURN(const EncoderSpec encoder, ReadEncoderSpec(config.raw));
    EncoderWeights unfilled;
    return CheckEncoderParameters(
        ListEncoderParameters(encoder, 0, EncoderPrefix(checkpoint), unfilled), checkpoint,
        *config.scheme);
  }
  const DecoderSpec& spec = config.spec;
  DecoderWeights unfilled;
  return CheckParameters(ListParameters(spec, unfilled), checkpoint, *config.scheme, spec);
}

Result<ModelMemory> PlanModel(const ModelConfig& config, const ModelOptions& options,
                              int num_threads) {
  return PlanShare(config, options, num_threads, {});
}

Result<ModelMemory> PlanShare(const ModelConfig& config, const ModelOptions& options,
                              int num_threads, const RankPlace& place) {
  RETURN_IF_ERROR(CheckOptions(options));
  if (IsEncoder(config.architecture)) return PlanEncoder(config, options, num_threads);
  const DecoderSpec& spec = config.spec;
  RETURN_IF_ERROR(CheckBlocks(spec, options));
  const DecoderSpec share = ShareOf(spec, place);
  DecoderWeights unfilled;
  const ParameterList parameters = ListParameters(spec, unfilled, place, options.drafter.get());
  ModelMemory memory;
  memory.weight_bytes = ParameterBytes(parameters, *config.scheme, options.compute_type);
  memory.token_weight_bytes =
      ParameterBytes(ReadByOneToken(share, options.drafter != nullptr, parameters, unfilled),
                     *config.scheme, options.compute_type);
  const program::Program program =
      program::BuildDecoder({.spec = spec,
                             .options = options,
                             .place = place,
                             .rounding = PlannedRounding(parameters, *config.scheme, options),
                             .num_threads = num_threads,
                             .weights = unfilled});
  memory.workspace_bytes =
      program::BufferPlan::For(program).total_bytes +
      kernels::LinearScratchBytes(num_threads, options.max_rows, program::WidestInput(program),
                                  OrdersInputs(parameters, *config.scheme, options.compute_type));
  if (options.lora.num_slots > 0) {
    const LoraLayout layout = LoraLayout::For(spec, options.lora, parameters, unfilled, place);
    memory.lora_bytes = layout.SlotBytes();
    memory.workspace_bytes += layout.StepBytes(options.max_rows);
  }
  memory.kv_groups = KvGroups::For(spec, options.max_context);
  const kernels::KvLayout layout = KvLayoutOf(share, options);
  memory.kv_bytes_per_block = KvCache::BytesPerBlock(layout, NumHeldKvLayers(spec, place));
  memory.kv_bytes_per_group_block =
      KvCache::BytesPerBlock(layout, ShareGroups(memory.kv_groups, spec, place).layers_per_group);
  memory.state_bytes_per_slot = StateLayout::For(share).slot_bytes();
  return memory;
}

Result<std::optional<Checkpoint>> OpenChecked(const std::filesystem::path& folder,
                                              const ModelConfig& config,
                                              const ModelOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  RETURN_IF_ERROR(CheckBlocks(config.spec, options));
  if (options.load_format == ModelOptions::LoadFormat::kDummy) return std::nullopt;
  ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(folder));
  RETURN_IF_ERROR(CheckTensors(config, checkpoint));
  return checkpoint;
}

Result<std::unique_ptr<DecoderModel>> LoadShare(ThreadPool& pool, const Checkpoint* checkpoint,
                                                const ModelConfig& config,
                                                const ModelOptions& options, const RankPlace& place,
                                                const RankGroups& groups,
                                                const LoadProgress& progress,
                                                std::shared_ptr<const DecoderWeights> target) {
  const DecoderSpec& spec = config.spec;
  const auto shared = std::make_shared<DecoderWeights>();
  DecoderWeights& weights = *shared;
  const ParameterList parameters = ListParameters(spec, weights, place, options.drafter.get());
  if (checkpoint == nullptr) {
    RETURN_IF_ERROR(FillDummyParameters(pool, parameters, options.dummy_seed, *config.scheme,
                                        options.compute_type, progress));
  } else {
    RETURN_IF_ERROR(LoadParameters(pool, parameters, *checkpoint, *config.scheme,
                                   options.compute_type, progress, options.allow_nonfinite));
    if (!spec.head.tokens.empty())
      RETURN_IF_ERROR(ReadTokenScores(*checkpoint, spec, weights.scores));
  }
  RETURN_IF_ERROR(CheckExperts(weights));
  if (options.kv_type == ElementType::kF8E4M3 && place.rank() == 0) LogKvScales(weights);
  InputRounding rounding = LoadedRounding(parameters, options);
  if (target != nullptr && !spec.tied_head)
    rounding = std::max(rounding, RoundingOf(target->head.inputs.format, options));
  DecoderAdapters adapters;
  if (options.lora.num_slots > 0) {
    ASSIGN_OR_RETURN(LoraSlots slots,
                     LoraSlots::Allocate(
                         LoraLayout::For(spec, options.lora, parameters, weights, place), shared));
    adapters.slots = std::make_shared<LoraSlots>(std::move(slots));
    ASSIGN_OR_RETURN(LoraStep step, LoraStep::Allocate(adapters.slots, options.max_rows));
    adapters.step = std::make_unique<LoraStep>(std::move(step));
  }
  return DecoderModel::Create(config, options, place, groups, shared, rounding, pool,
                              std::move(adapters), std::move(target));
}

Result<std::unique_ptr<Model>> LoadModel(ThreadPool& pool, const std::filesystem::path& folder,
                                         const ModelConfig& config, const ModelOptions& options,
                                         const LoadProgress& progress) {
  if (IsEncoder(config.architecture)) {
    RETURN_IF_ERROR(CheckOptions(options));
    return LoadEncoder(pool, folder, config, options, progress);
  }
  ASSIGN_OR_RETURN(const std::optional<Checkpoint> checkpoint,
                   OpenChecked(folder, config, options));
  return LoadShare(pool, checkpoint ? &*checkpoint : nullptr, config, options, {}, {}, progress);
}

}  // namespace sluice
