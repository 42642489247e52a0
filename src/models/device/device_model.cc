// PlanDeviceModel and LoadDeviceModel.
#include "models/device/device_model.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"
#include "checkpoint/page_cache.h"
#include "device/device_pool.h"
#include "device/integrated_gpu.h"
#include "device/uploader.h"
#include "kernels/cuda/device_kernel_tables.h"
#include "kernels/cuda/device_linear.h"
#include "models/device/device_decoder.h"
#include "models/device/device_encoder_loading.h"
#include "models/device/device_executor.h"
#include "models/device/device_graphs.h"
#include "models/device/device_lora.h"
#include "models/device/device_options.h"
#include "models/device/device_sink.h"
#include "models/drafter.h"
#include "models/encoder/encoder_spec.h"
#include "models/kv_layout.h"
#include "models/program/build_decoder.h"
#include "models/score_head.h"
#include "models/share.h"
#include "models/weight_loader.h"

namespace sluice {
namespace {

constexpr int kWidestCappedHead = 256;

// Returns the name of a part of the spec that the device's decoder does not compute; "" if it
// computes all parts.
std::string MissingKernel(const DecoderSpec& spec) {
  if (spec.norm.kind != NormSpec::Kind::kRms) return "layer norms";
  if (spec.streams) return "several residual streams";
  if (spec.head_bias) return "a bias of the output head";
  if (!spec.positions.module.empty()) return "learned positions";
  if (spec.final_norm_eps_factor != 1) return "norms with separate epsilons";
  if (spec.placeholders[0] >= 0) return "placeholder tokens for parts of images";
  for (const LayerSpec& layer : spec.layers) {
    if (layer.attention.block_indexer) return "attention to chosen blocks of positions";
    if (layer.attention.latent && layer.attention.latent->compressed)
      return "cache entries that each represent several tokens";
    if (layer.moe && layer.moe->score == kernels::RouterScore::kSqrtSoftplus)
      return "expert routing by sqrt(softplus)";
    if (layer.attention.latent) {
      const auto& indexer = layer.attention.latent->indexer;
      if (indexer && indexer->head_dim > device::kMostIndexDim)
        return fmt::format("indexer heads of more than {} numbers", device::kMostIndexDim);
      if (layer.attention.sinks || layer.attention.soft_cap != 0)
        return "sinks or a soft cap of latent attention";
    }
    if (layer.mixer && layer.mixer->key_dim > device::kMostStateKeys)
      return fmt::format("keys of recurrent states of more than {} numbers",
                         device::kMostStateKeys);
    if (layer.mixer && layer.mixer->values_width() % 8 != 0)
      return "recurrent layers whose output width is not a multiple of 8";
    constexpr int kRotatedUnit = 16;  // in the widest heads: rope_append
    if (!layer.attention.latent && layer.attention.head_dim > 256 &&
        layer.attention.rotated() % kRotatedUnit != 0)
      return "partial rope on wide heads whose rotated part is not a multiple of 16";
    if (layer.attention.soft_cap != 0 && layer.attention.head_dim > kWidestCappedHead)
      return fmt::format("a soft cap of attention scores of heads of more than {} numbers",
                         kWidestCappedHead);
    if (layer.attention.qk_norm == QkNorm::kLayerBeforeRope) return "layer norms of heads";
    if (layer.attention.qkv_limit != 0) return "clamped q, k and v";
    if (layer.attention.narrow_value_dim != 0) return "values whose width differs from the keys'";
    if (!layer.attention.output_norm.empty() || !layer.mlp.inner_norm.empty())
      return "norms within sublayers";
    if (layer.attention.temperature_tuning && layer.attention.temperature_tuning->power != 0)
      return "an attention temperature with a power of the position";
    if (layer.attention.qk_norm == QkNorm::kAfterRope)
      return "per-head norms with weights after rope";
    if (layer.is_parallel) return "attention and MLP in parallel";
    const bool has_mlp = layer.mlp.intermediate_size > 0;
    const auto is_plain = [](bool is_gated, Activation activation) {
      return !is_gated && activation != Activation::kRelu2;
    };
    if ((has_mlp && is_plain(layer.mlp.is_gated(), layer.mlp.activation)) ||
        (layer.moe && is_plain(layer.moe->is_gated(), layer.moe->activation)))
      return "an MLP without a gate";
    const auto has_factors = [](const auto& spec) { return spec.gain != 1 || spec.up_offset != 0; };
    if (has_factors(layer.mlp) || (layer.moe && has_factors(*layer.moe)))
      return "a gain or an offset of an MLP's activation";
    if (layer.mlp.limit != 0 || (layer.moe && layer.moe->limit != 0))
      return "clamped inputs of an MLP's product";
    const auto missing_activation = [](Activation activation) -> std::string {
      switch (activation) {
        case Activation::kGelu: return "GELU by erf";
        case Activation::kRelu: return "ReLU";
        case Activation::kXielu: return "xIELU";
        case Activation::kRelu2:
        case Activation::kSilu:
        case Activation::kGeluTanh:
        case Activation::kClampedSwiglu: break;
      }
      return "";
    };
    std::string missing = missing_activation(layer.mlp.activation);
    if (layer.moe && missing.empty()) missing = missing_activation(layer.moe->activation);
    if (!missing.empty()) return missing;
    if (layer.moe && layer.moe->score == kernels::RouterScore::kSparseMixer)
      return "expert routing by sparsemixer";
    if (layer.moe && layer.moe->num_groups > device::kMostRouterGroups)
      return fmt::format("expert routing with more than {} groups", device::kMostRouterGroups);
    if (layer.moe && layer.moe->soft_cap != 0) return "a soft cap of the router's logits";
    if (layer.moe && layer.moe->latent && !layer.mlp.output_gate.empty())
      return "experts that read projected rows, in parallel with a gated MLP";
    if (layer.moe && layer.moe->has_bias && layer.moe->activation != Activation::kClampedSwiglu)
      return "biases of experts without a clamped SwiGLU";
  }
  return "";
}

// Returns whether a kernel computes attention with these heads.
bool HasAttentionKernel(const AttentionSpec& attention) {
  const int dim = attention.head_dim;
  if (!attention.exists()) return true;
  if (attention.latent) {
    return dim % 8 == 0 && dim <= device::kMostLatentKeyDim &&
           attention.latent->kv_rank <= device::kMostLatentDim;
  }
  return (dim % 8 == 0 && dim >= 16 && dim <= 256) || dim == 512;
}

Status CheckSpec(const DecoderSpec& spec) {
  if (const std::string missing = MissingKernel(spec); !missing.empty()) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format(
            "this model has {}, for which devices have no kernel; serve it with --device cpu",
            missing),
        "device");
  }
  // Maximum row width that one thread block of a norm kernel processes.
  constexpr int64_t kMostHidden = 32768;
  constexpr int64_t kMostExperts = 512;
  for (const LayerSpec& layer : spec.layers) {
    if (HasAttentionKernel(layer.attention)) continue;
    if (layer.attention.latent) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("a latent vector and a shared key have {} + {} numbers: devices "
                              "support sums that are a multiple of 8, up to {}, with a vector of "
                              "up to {} numbers; serve this model on the CPU",
                              layer.attention.latent->kv_rank, layer.attention.latent->rope_dim,
                              device::kMostLatentKeyDim, device::kMostLatentDim),
                  "kv_lora_rank");
    }
    return Fail(ErrorCode::kUnsupported,
                fmt::format("head_dim is {}: attention on a device supports multiples of 8 from 16 "
                            "to 256, and 512; serve this model on the CPU",
                            layer.attention.head_dim),
                "head_dim");
  }
  if (spec.hidden_size > kMostHidden) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("hidden_size is {}: devices support up to {}; serve this model on the CPU",
                    spec.hidden_size, kMostHidden),
        "hidden_size");
  }
  for (const LayerSpec& layer : spec.layers) {
    if (!layer.moe || layer.moe->num_experts <= kMostExperts) continue;
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("layers have {} experts: devices support up to {}; serve this model on the CPU",
                    layer.moe->num_experts, kMostExperts),
        "num_experts");
  }
  return {};
}

// Refuses models that devices cannot divide among several ranks: models with per-layer embeddings,
// and models whose recurrent layers have a width per rank that is not a multiple of 8. With
// pipeline stages, also refuses models with layers that have no attention or that share keys and
// values.
Status CheckRanksOf(const DecoderSpec& spec, const RankPlace& place) {
  if (place.is_alone()) return {};
  for (const LayerSpec& layer : ShareOf(spec, place).layers) {
    if (!layer.mixer || layer.mixer->values_width() % 8 == 0) continue;
    return Fail(ErrorCode::kUnsupported,
                fmt::format("a device's part of a recurrent layer has {} numbers, no multiple of "
                            "8: serve this model with another --tensor-parallel-size, or with "
                            "--device cpu",
                            layer.mixer->values_width()),
                "tensor_parallel_size");
  }
  if (spec.layer_embeddings.width > 0) {
    return Fail(ErrorCode::kUnsupported,
                "this model has per-layer embeddings, which devices do not divide: serve it on one "
                "device, or with --device cpu",
                "tensor_parallel_size");
  }
  const bool shares_kv = std::ranges::any_of(
      spec.layers, [](const LayerSpec& layer) { return layer.attention.kv_layer >= 0; });
  const bool lacks_attention = std::ranges::any_of(
      spec.layers, [](const LayerSpec& layer) { return !layer.attention.exists(); });
  if (lacks_attention && place.num_stages > 1) {
    return Fail(ErrorCode::kUnsupported,
                "this model has layers without attention, which devices do not divide into stages: "
                "serve it with --pipeline-parallel-size 1, or with --device cpu",
                "pipeline_parallel_size");
  }
  if (shares_kv && place.num_stages > 1) {
    return Fail(ErrorCode::kUnsupported,
                "layers of this model use the keys and values of others, which devices do not send "
                "from stage to stage: serve it with --pipeline-parallel-size 1, or with --device "
                "cpu",
                "pipeline_parallel_size");
  }
  return {};
}

// Refuses lists of chosen positions that are too long, and layers whose head_dim does not divide
// the cache's block stride: kernels compute offsets of blocks of keys in multiples of head_dim.
Status CheckBlocks(const DecoderSpec& share, const ModelOptions& options) {
  const int64_t stride = KvLayoutOf(share, options).BlockStride();
  for (const LayerSpec& layer : share.layers) {
    if (!layer.attention.exists()) continue;
    const int64_t chosen = layer.attention.latent && layer.attention.latent->indexer
                               ? layer.attention.latent->indexer->top_k
                               : 0;
    if (chosen * options.max_rows > INT32_MAX) {
      return Fail(
          ErrorCode::kUnsupported,
          fmt::format("index_topk is {}: devices store this number of positions for each of up to "
                      "{} tokens of a step, and the total must be less than 2^31; lower "
                      "--max-num-batched-tokens, or serve with --device cpu",
                      chosen, options.max_rows),
          "index_topk");
    }
    if (stride % layer.attention.head_dim == 0) continue;
    return Fail(ErrorCode::kUnsupported,
                fmt::format("the KV cache's block stride of {} numbers is not a multiple of the "
                            "head size {}: use another --block-size, or --device cpu",
                            stride, layer.attention.head_dim),
                "block_size");
  }
  return {};
}

Result<DecoderSpec> SpecFor(const ModelConfig& config, const ModelOptions& options,
                            const RankPlace& place) {
  RETURN_IF_ERROR(CheckDeviceOptions(options));
  RETURN_IF_ERROR(CheckSpec(config.spec));
  RETURN_IF_ERROR(CheckRanksOf(config.spec, place));
  RETURN_IF_ERROR(CheckBlocks(ShareOf(config.spec, place), options));
  DecoderSpec spec = config.spec;
  spec.FitRope(options.max_context);
  return spec;
}

// Whether rows of an MLP may be rounded with a scale computed from the whole row, according to
// config.json.
bool RoundsWholeRows(const ParameterList& list, const QuantizationScheme& scheme,
                     const DeviceRounding& rounding) {
  using Kind = ActivationFormat::Kind;
  return std::any_of(list.matrices.begin(), list.matrices.end(), [&](const auto& matrix) {
    if (matrix.inputs == nullptr) return false;
    const Kind kind = scheme.PlannedActivations(matrix.parts.front().name).kind;
    return (kind == Kind::kFp8PerToken && rounding.e4m3) ||
           (kind == Kind::kNvfp4 && (rounding.nvf4 || rounding.nvf4_experts)) ||
           (kind == Kind::kMxfp4 && rounding.mxf4);
  });
}

// Refuses a checkpoint that rounds whole rows although config.json does not specify it, because
// ranks then have no buffer to gather rows in F32.
Status CheckRounding(const program::Program& program, const DeviceProgramWeights& weights,
                     bool rounds_whole_rows) {
  if (rounds_whole_rows) return {};
  for (const program::Op& op : program.ops) {
    const auto* const gate = std::get_if<program::GateMul>(&op);
    if (gate == nullptr || !weights.InputsOf(gate->reader).RoundsWholeRows()) continue;
    return Fail(ErrorCode::kUnsupported,
                "the checkpoint rounds the inputs of its layers differently than config.json "
                "states; serve this model on one device, or with --activation-format bfloat16",
                "tensor_parallel_size");
  }
  return {};
}

// A program, its weights and the offsets of its buffers.
struct PlacedProgram {
  program::Program program;
  DeviceProgramWeights weights;
  DevicePlan plan;
};

int64_t StepInputsOffset(const PlacedProgram& placed) {
  return placed.plan
      .offsets[static_cast<size_t>(program::FindBuffer(placed.program, "step_inputs"))];
}

// `spec`: the spec of the whole model. `list`: the parameters, with targets in `loaded`. `memory`:
// the memory of the weights.
PlacedProgram ProgramFor(const DecoderSpec& spec, const ModelOptions& options,
                         const RankPlace& place, const DeviceInfo& device,
                         const ParameterList& list, const DecoderWeights& loaded,
                         const DeviceWeightLayout& layout, const LoraLayout* lora,
                         bool rounds_whole_rows, std::byte* memory, const DeviceTables& tables,
                         bool keeps_apart = false) {
  const DecoderSpec share = ShareOf(spec, place);
  const program::DeviceTarget target = {
      .wide = spec.NumMoeLayers() > 0 ? ElementType::kF32 : ElementType::kBF16,
      .attention_partials = DeviceStepInputs::PartialsBytes(share, options),
      .lora_ranks = lora == nullptr ? 0 : lora->MostRanks(),
      .rounds_whole_rows = rounds_whole_rows};
  PlacedProgram placed;
  static const DecoderWeights owner{};  // the target of a drafting head has no weights in this list
  placed.program = program::BuildDecoder({.spec = spec,
                                          .options = options,
                                          .place = place,
                                          .device = &target,
                                          .weights = loaded,
                                          .target = options.drafter != nullptr ? &owner : nullptr});
  placed.weights = PlaceWeights(placed.program, list, layout, DeviceRounding::For(options, device),
                                memory, {options.drafter != nullptr ? &owner : nullptr, tables});
  SizeProductBuffers(placed.program, placed.weights, device, LinearOptionsOf(options),
                     rounds_whole_rows);
  AddStepInputs(placed.program,
                DeviceStepInputs::MaxBytes(
                    share, options, KvGroups::For(spec, options.max_context).num_groups(), place));
  if (options.image_rows > 0)
    AddImageRows(placed.program, options.image_rows * spec.ImageRowWidth() * 4);
  if (place.tensor_size > 1 && !options.exchanges_by_nccl) AddExchange(placed.program);
  if (options.kept_rows > 0)
    AddKeptRows(placed.program, options.kept_rows * options.drafter->target_width() * 4);
  placed.plan = DevicePlan::For(placed.program, keeps_apart);
  return placed;
}

std::byte* BufferOf(const PlacedProgram& placed, std::byte* workspace, std::string_view name) {
  return workspace +
         placed.plan.offsets[static_cast<size_t>(program::FindBuffer(placed.program, name))];
}

// Returns null if the rank gathers only through its group.
Result<std::unique_ptr<PeerExchange>> MakePeers(Device& device, const DeviceRank& rank,
                                                const PlacedProgram& placed, std::byte* workspace) {
  if (rank.stage == nullptr) return nullptr;
  const bool has_logits =
      std::ranges::any_of(placed.program.buffers,
                          [](const program::Buffer& buffer) { return buffer.name == "logits"; });
  return PeerExchange::Create(
      {.stage = *rank.stage,
       .device = device,
       .devices = rank.stage_devices,
       .stream = *rank.stream,
       .kernel = device::ExchangeColumnsOf(device.info().kind),
       .memory = BufferOf(placed, workspace, kExchange),
       .slot_bytes = ExchangedBytes(placed.program),
       .logits = has_logits ? BufferOf(placed, workspace, "logits") : nullptr,
       .stop = rank.stop});
}

// Returns the layout of the adapters for which the options have slots; nullopt if there are no
// slots.
std::optional<LoraLayout> LoraLayoutFor(const DecoderSpec& spec, const ModelOptions& options,
                                        const ParameterList& list, DecoderWeights& weights,
                                        const RankPlace& place) {
  if (options.lora.num_slots == 0) return std::nullopt;
  return LoraLayout::For(spec, options.lora, list, weights, place);
}

// Returns the bytes of the weights that a step of one token reads: all except embedding tables and
// experts that are not chosen.
int64_t TokenWeightBytes(const DecoderSpec& spec, bool is_drafter, const ParameterList& list,
                         const DecoderWeights& unfilled, const DeviceWeightLayout& layout) {
  std::set<const kernels::PackedMatrix*> unread = {&unfilled.layer_embeddings};
  if (spec.LoadsHead() || spec.head.kind != HeadSpec::Kind::kVocabulary || is_drafter)
    unread.insert(&unfilled.embedding);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (!spec.layers[i].moe) continue;
    const MoeWeights& moe = unfilled.layers[i].moe;
    for (const ExpertWeights* experts : {&moe.gate_up, &moe.down}) {
      for (auto e = static_cast<size_t>(spec.layers[i].moe->top_k); e < experts->matrices.size();
           ++e)
        unread.insert(&experts->matrices[e]);
    }
  }
  int64_t bytes = layout.total_bytes();
  for (size_t i = 0; i < list.matrices.size(); ++i) {
    if (unread.contains(list.matrices[i].target)) bytes -= layout.matrix(i).total_bytes;
  }
  return bytes;
}

// Returns the tables of a drafting head's target, as the target's configuration describes them,
// without addresses.
Result<DeviceTables> PlannedTables(const ModelOptions& options, const DeviceInfo& device,
                                   std::byte* nowhere) {
  if (options.target == nullptr) return DeviceTables();
  DecoderSpec spec = options.target->spec;
  spec.layers.clear();
  spec.num_draft_layers = 0;
  spec.layer_embeddings.width = 0;
  DecoderWeights unfilled;
  const ParameterList list = ListParameters(spec, unfilled);
  ASSIGN_OR_RETURN(const DeviceWeightLayout layout,
                   DeviceWeightLayout::For(spec.rope_tables, list,
                                           PlannedFormats(list, *options.target->scheme)));
  return TablesOf(unfilled, list, layout, DeviceRounding::For(options, device), nowhere);
}

// Logs which input roundings of the checkpoint the device does not apply.
void LogUnroundedInputs(const ModelOptions& options, const PlacedProgram& placed) {
  using Rounding = ModelOptions::ActivationRounding;
  if (options.activation_format == Rounding::kBf16) return;
  int64_t asked = 0, rounded = 0;
  const auto count = [&](const LinearInputs& inputs, const DeviceLinearWeights& mine) {
    if (inputs.format.kind == ActivationFormat::Kind::kNone) return;
    ++asked;
    rounded += mine.inputs.is_rounded();
  };
  for (size_t i = 0; i < placed.program.linears.size(); ++i)
    count(placed.program.linears[i]->inputs, placed.weights.linears[i]);
  for (size_t i = 0; i < placed.program.experts.size(); ++i) {
    const std::vector<LinearInputs>& inputs = placed.program.experts[i]->inputs;
    if (!inputs.empty()) count(inputs.front(), placed.weights.experts[i].first);
  }
  if (rounded == asked) return;
  const std::string text = fmt::format(
      "the checkpoint rounds the inputs of {} linear layers, the device those of {}: FP8 by tensor "
      "or by token with FP8 weights, NVFP4 with NVFP4 weights (by default on GPUs of compute "
      "capability 10.0 and later, and not for experts), MXFP4 with MXFP4 weights (by default on "
      "gfx950), where the experts of a layer have one scale; the inputs of the others are bfloat16",
      asked, rounded);
  if (options.activation_format == Rounding::kCheckpoint)
    LOG_WARNING("models", "{}", text);
  else
    LOG_INFO("models", "{}", text);
}

}  // namespace

Result<ModelMemory> PlanDeviceModel(const ModelConfig& config, const ModelOptions& options,
                                    const DeviceInfo& device, const RankPlace& place) {
  if (IsEncoder(config.architecture)) {
    CHECK(place.tensor_size == 1 && place.num_stages == 1, "an encoder has only one rank");
    return PlanDeviceEncoder(config, options, device);
  }
  ASSIGN_OR_RETURN(const DecoderSpec spec, SpecFor(config, options, place));
  const DecoderSpec share = ShareOf(spec, place);
  DecoderWeights unfilled;
  const ParameterList list = ListParameters(spec, unfilled, place, options.drafter.get());
  const std::optional<LoraLayout> lora = LoraLayoutFor(spec, options, list, unfilled, place);
  ASSIGN_OR_RETURN(
      const DeviceWeightLayout layout,
      DeviceWeightLayout::For(spec.rope_tables, list, PlannedFormats(list, *config.scheme)));
  const DeviceRounding rounding = DeviceRounding::For(options, device);
  ModelMemory memory;
  memory.weight_bytes = layout.total_bytes();
  memory.token_weight_bytes =
      TokenWeightBytes(share, options.drafter != nullptr, list, unfilled, layout);
  if (lora) memory.lora_bytes = DeviceLoraSlots::Bytes(*lora);
  // A dummy address: only sizes are computed.
  auto* const nowhere = std::bit_cast<std::byte*>(DevicePool::kAlignment);
  ASSIGN_OR_RETURN(const DeviceTables tables, PlannedTables(options, device, nowhere));
  const PlacedProgram placed =
      ProgramFor(spec, options, place, device, list, unfilled, layout, lora ? &*lora : nullptr,
                 RoundsWholeRows(list, *config.scheme, rounding), nowhere, tables);
  memory.workspace_bytes = placed.plan.total_bytes;
  memory.graph_bytes = GraphBytes(placed.program, placed.weights, share, options);
  memory.kv_groups = KvGroups::For(spec, options.max_context);
  memory.state_bytes_per_slot = StateLayout::For(share).slot_bytes();
  const kernels::KvLayout kv = KvLayoutOf(share, options);
  memory.kv_bytes_per_block = KvCache::BytesPerBlock(kv, NumHeldKvLayers(spec, place));
  memory.kv_bytes_per_group_block =
      KvCache::BytesPerBlock(kv, ShareGroups(memory.kv_groups, spec, place).layers_per_group);
  return memory;
}

Result<std::unique_ptr<Model>> LoadDeviceModel(Device& device, DevicePool& pool,
                                               ThreadPool& threads,
                                               const std::filesystem::path& folder,
                                               ModelConfig config, const ModelOptions& options,
                                               const LoadProgress& progress) {
  if (IsEncoder(config.architecture)) {
    return LoadDeviceEncoder(device, pool, threads, folder, std::move(config), options, progress);
  }
  RETURN_IF_ERROR(SpecFor(config, options, RankPlace()));
  ASSIGN_OR_RETURN(const std::optional<Checkpoint> checkpoint,
                   OpenChecked(folder, config, options));
  DeviceRank alone;
  ASSIGN_OR_RETURN(alone.stream, device.CreateStream());
  return LoadDeviceShare(device, pool, threads, checkpoint ? &*checkpoint : nullptr,
                         std::move(config), options, std::move(alone), progress);
}

Result<std::unique_ptr<Model>> LoadDeviceDrafter(Device& device, DevicePool& pool,
                                                 ThreadPool& threads,
                                                 const std::filesystem::path& folder,
                                                 ModelConfig config, const ModelOptions& options,
                                                 Model& target) {
  auto* const decoder = dynamic_cast<DeviceDecoder*>(&target);
  CHECK(decoder != nullptr, "a drafting head of a model that is not on a single device");
  ASSIGN_OR_RETURN(const std::optional<Checkpoint> checkpoint,
                   OpenDrafter(folder, config, options));
  DeviceRank alone;
  alone.stream = decoder->stream();
  return LoadDeviceShare(device, pool, threads, checkpoint ? &*checkpoint : nullptr,
                         std::move(config), options, std::move(alone), {}, decoder->tables());
}

Result<std::unique_ptr<Model>> LoadDeviceShare(Device& device, DevicePool& pool,
                                               ThreadPool& threads, const Checkpoint* checkpoint,
                                               ModelConfig config, const ModelOptions& options,
                                               DeviceRank rank, const LoadProgress& progress,
                                               const DeviceTables& target_tables) {
  const RankPlace& place = rank.place;
  ASSIGN_OR_RETURN(DecoderSpec spec, SpecFor(config, options, place));
  const DecoderSpec share = ShareOf(spec, place);
  const QuantizationScheme& scheme = *config.scheme;
  DecoderWeights loaded;
  const ParameterList list = ListParameters(spec, loaded, place, options.drafter.get());
  std::optional<LoraLayout> lora_layout = LoraLayoutFor(spec, options, list, loaded, place);
  std::vector<DataFormat> formats;
  if (checkpoint == nullptr) {
    formats = PlannedFormats(list, scheme);
  } else {
    ASSIGN_OR_RETURN(formats, StoredFormats(list, *checkpoint, scheme));
  }
  ASSIGN_OR_RETURN(
      DeviceWeightLayout layout,
      DeviceWeightLayout::For(spec.rope_tables, list, formats, pool.keeps_arrays_apart()));
  ASSIGN_OR_RETURN(void* const weights_memory,
                   pool.Take(layout.total_bytes(), "the weights", layout.gaps()));
  auto* const memory = static_cast<std::byte*>(weights_memory);

  const device::DeviceKernels& kernels = device::KernelsOf(device.info().kind);
  {
    ASSIGN_OR_RETURN(Uploader uploader, Uploader::Create(device));
    std::optional<PageCacheDropper> dropper;
    if (checkpoint != nullptr && IsIntegratedGpu(device.info())) dropper.emplace(*checkpoint);
    RETURN_IF_ERROR(FillDeviceWeights(
        {uploader, threads, kernels, *rank.stream, dropper ? &*dropper : nullptr}, list,
        list.vectors, spec.rope_tables, checkpoint, scheme, options, progress, layout, memory));
  }
  if (checkpoint != nullptr && !spec.head.tokens.empty()) {
    RETURN_IF_ERROR(ReadTokenScores(*checkpoint, spec, loaded.scores));
  }
  const DeviceRounding rounding = DeviceRounding::For(options, device.info());
  const bool rounds_whole_rows = RoundsWholeRows(list, scheme, rounding);
  PlacedProgram placed = ProgramFor(spec, options, place, device.info(), list, loaded, layout,
                                    lora_layout ? &*lora_layout : nullptr, rounds_whole_rows,
                                    memory, target_tables, pool.keeps_arrays_apart());
  if (place.rank() == 0) {
    if (options.kv_type == ElementType::kF8E4M3) LogKvScales(loaded);
    LogUnroundedInputs(options, placed);
  }
  if (place.tensor_size > 1)
    RETURN_IF_ERROR(CheckRounding(placed.program, placed.weights, rounds_whole_rows));
  const DeviceTables tables = TablesOf(loaded, list, layout, rounding, memory);
  ASSIGN_OR_RETURN(void* const workspace,
                   pool.Take(placed.plan.total_bytes, "the workspace of a step", placed.plan.gaps));
  auto* const workspace_bytes = static_cast<std::byte*>(workspace);
  std::shared_ptr<DeviceLoraSlots> lora;
  if (lora_layout) {
    ASSIGN_OR_RETURN(void* const slots,
                     pool.Take(DeviceLoraSlots::Bytes(*lora_layout), "the slots of LoRA adapters"));
    ASSIGN_OR_RETURN(lora, DeviceLoraSlots::Create(device, *std::move(lora_layout),
                                                   static_cast<std::byte*>(slots)));
  }
  ASSIGN_OR_RETURN(auto linear,
                   device::DeviceLinear::Create(device, kernels, LinearOptionsOf(options)));
  ASSIGN_OR_RETURN(auto inputs,
                   DeviceStepInputs::Create(device, share, options,
                                            KvGroups::For(spec, options.max_context).num_groups(),
                                            workspace_bytes + StepInputsOffset(placed), place));
  std::array<std::unique_ptr<DeviceEvent>, DeviceStepInputs::kMostInFlight> events;
  for (std::unique_ptr<DeviceEvent>& event : events) {
    ASSIGN_OR_RETURN(event, device.CreateEvent());
  }
  int64_t most_experts = 0;
  for (const LayerSpec& layer : share.layers)
    most_experts = std::max(most_experts, layer.moe ? layer.moe->num_experts : int64_t{0});
  DeviceBuffer expert_rows;
  if (most_experts > 0) {
    ASSIGN_OR_RETURN(expert_rows,
                     device.AllocatePinned((most_experts + 1) * 4, "how many rows experts have"));
  }
  std::unique_ptr<DeviceRanks> ranks;
  if (rank.group != nullptr) {
    ASSIGN_OR_RETURN(auto peers, MakePeers(device, rank, placed, workspace_bytes));
    ranks = std::make_unique<DeviceRanks>(std::move(rank.group), std::move(peers), kernels, spec,
                                          place);
  }
  const DeviceExecutor::Parts parts = {.kernels = kernels,
                                       .stream = *rank.stream,
                                       .linear = *linear,
                                       .ranks = ranks.get(),
                                       .lora = lora.get(),
                                       .expert_rows = expert_rows.data(),
                                       .place = place,
                                       .whole = spec,
                                       .image_row_width = spec.ImageRowWidth(),
                                       .op_times = options.op_times.get()};
  auto executor =
      std::make_unique<DeviceExecutor>(std::move(placed.program), std::move(placed.weights),
                                       std::move(placed.plan), workspace_bytes, parts);
  auto model =
      std::make_unique<DeviceDecoder>(std::move(config), options, std::move(spec), place,
                                      DeviceDecoder::Parts{.device = device,
                                                           .kernels = kernels,
                                                           .stream = std::move(rank.stream),
                                                           .linear = std::move(linear),
                                                           .inputs = std::move(inputs),
                                                           .ranks = std::move(ranks),
                                                           .executor = std::move(executor),
                                                           .events = std::move(events),
                                                           .expert_rows = std::move(expert_rows),
                                                           .scores = std::move(loaded.scores),
                                                           .tables = tables,
                                                           .lora = std::move(lora)});
  RETURN_IF_ERROR(model->Tune());
  return model;
}

}  // namespace sluice
