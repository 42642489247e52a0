// PlanDeviceModel and LoadDeviceModel.
#include "models/device/device_model.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"
#include "device/device_pool.h"
#include "device/uploader.h"
#include "kernels/cuda/device_kernel_tables.h"
#include "kernels/cuda/device_linear.h"
#include "kernels/cuda/linear_shapes.h"
#include "models/device/device_decoder.h"
#include "models/device/device_encoder_loading.h"
#include "models/device/device_graphs.h"
#include "models/device/device_lora.h"
#include "models/device/device_options.h"
#include "models/device/device_sink.h"
#include "models/encoder/encoder_spec.h"
#include "models/score_head.h"
#include "models/share.h"
#include "models/weight_loader.h"
#include "models/workspace.h"
#include "tensor/bfloat16.h"

namespace sluice {
namespace {

constexpr int kWidestCappedHead = 256;

// What of the description the device's decoder does not compute; "" if nothing.
std::string MissingKernel(const DecoderSpec& spec) {
  for (const LayerSpec& layer : spec.layers) {
    constexpr int kRotatedUnit = 16;  // of the widest heads: rope_append
    if (layer.attention.head_dim > 256 && layer.attention.rotated() % kRotatedUnit != 0)
      return "rope on a part of wide heads that is no multiple of 16";
    if (layer.attention.soft_cap != 0 && layer.attention.head_dim > kWidestCappedHead)
      return fmt::format("a soft cap of attention scores of heads of more than {} numbers",
                         kWidestCappedHead);
    if (layer.moe && layer.moe->has_bias && layer.moe->activation != Activation::kClampedSwiglu)
      return "biases of experts with another gate than a clamped SwiGLU";
    if (layer.moe && !layer.moe->choice_bias.empty() &&
        layer.moe->score != kernels::RouterScore::kSigmoid)
      return "a bias for a choice of experts by softmax";
  }
  return "";
}

bool HasAttentionKernel(int head_dim) {
  return (head_dim % 8 == 0 && head_dim >= 32 && head_dim <= 256) || head_dim == 512;
}

Status CheckSpec(const DecoderSpec& spec) {
  constexpr int64_t kMostHidden = 32768;  // of a row that one block of threads norms
  constexpr int64_t kMostExperts = 512;
  for (const LayerSpec& layer : spec.layers) {
    if (HasAttentionKernel(layer.attention.head_dim)) continue;
    return Fail(ErrorCode::kUnsupported,
                fmt::format("head_dim is {}: attention on a device takes multiples of 8 from 32 to "
                            "256, and 512; serve this model on the CPU",
                            layer.attention.head_dim),
                "head_dim");
  }
  if (spec.hidden_size > kMostHidden) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("hidden_size is {}: devices take up to {}; serve this model on the CPU",
                            spec.hidden_size, kMostHidden),
                "hidden_size");
  }
  if (const std::string missing = MissingKernel(spec); !missing.empty()) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("this model has {}, which no kernel of devices computes; serve it with "
                            "--device cpu",
                            missing),
                "device");
  }
  for (const LayerSpec& layer : spec.layers) {
    if (!layer.moe || layer.moe->num_experts <= kMostExperts) continue;
    return Fail(ErrorCode::kUnsupported,
                fmt::format("layers have {} experts: devices take up to {}; serve this model on "
                            "the CPU",
                            layer.moe->num_experts, kMostExperts),
                "num_experts");
  }
  return {};
}

// What one rank gives another is the residual, and of a rank's layers the results.
Status CheckRanksOf(const DecoderSpec& spec, const RankPlace& place) {
  if (place.is_alone()) return {};
  if (spec.layer_embeddings.width > 0) {
    return Fail(ErrorCode::kUnsupported,
                "this model has embeddings in its layers, which devices do not share: serve it on "
                "one device, or with --device cpu",
                "tensor_parallel_size");
  }
  const bool shares_kv = std::ranges::any_of(
      spec.layers, [](const LayerSpec& layer) { return !layer.attention.has_own_kv(); });
  if (shares_kv && place.num_stages > 1) {
    return Fail(ErrorCode::kUnsupported,
                "layers of this model use the keys and values of others, which devices do not send "
                "from stage to stage: serve it with --pipeline-parallel-size 1, or with --device "
                "cpu",
                "pipeline_parallel_size");
  }
  return {};
}

// Kernels count where blocks of keys begin in rows of the layer's heads.
Status CheckBlocks(const DecoderSpec& share, const ModelOptions& options) {
  const int64_t stride = KvLayoutOf(share, options).BlockStride();
  for (const LayerSpec& layer : share.layers) {
    if (stride % layer.attention.head_dim == 0) continue;
    return Fail(ErrorCode::kUnsupported,
                fmt::format("layers have heads of {} numbers, of which the {} of a block of the KV "
                            "cache are no multiple: use another --block-size, or --device cpu",
                            layer.attention.head_dim, stride),
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

int64_t LinearScratch(const DecoderSpec& spec, const ModelOptions& options,
                      const DeviceInfo& device, const DeviceDecoderWeights& weights) {
  const device::DeviceLinearOptions linear = LinearOptionsOf(options);
  const int64_t moe_pairs = DeviceWorkspaceLayout::For(spec, options).moe_pairs;
  int64_t bytes = 0;
  const auto product = [&](const DeviceLinearWeights& layer) {
    if (layer.matrix.n == 0) return;
    bytes = std::max(bytes, device::DeviceLinear::PlannedScratchBytes(device, linear, layer.matrix,
                                                                      options.max_rows));
  };
  for (const DeviceLayerWeights& layer : weights.layers) {
    for (const DeviceLinearWeights* one : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down,
                                           &layer.embedding_gate, &layer.embedding_projection}) {
      product(*one);
    }
    if (layer.router == nullptr) continue;
    // Together, or each by itself, which may get them all.
    for (const DeviceExpertWeights* experts : {&layer.expert_gate_up, &layer.expert_down}) {
      const device::Weights& w = experts->first.matrix;
      bytes = std::max({bytes, device::LinearScratchBytes(w, moe_pairs),
                        device::DeviceLinear::PlannedScratchBytes(device, linear, w, moe_pairs)});
    }
  }
  product(weights.layer_projection);
  product(weights.head);
  return bytes;
}

// Whether rows of an MLP may be rounded by what all of their numbers are, from config.json alone.
bool RoundsWholeRows(const ParameterList& list, const QuantizationScheme& scheme,
                     const DeviceRounding& rounding) {
  using Kind = ActivationFormat::Kind;
  return std::any_of(list.matrices.begin(), list.matrices.end(), [&](const auto& matrix) {
    if (matrix.inputs == nullptr) return false;
    const Kind kind = scheme.PlannedActivations(matrix.parts.front().name).kind;
    return (kind == Kind::kFp8PerToken && rounding.e4m3) ||
           (kind == Kind::kNvfp4 && (rounding.nvf4 || rounding.nvf4_experts));
  });
}

// Ranks have no room to gather rows in F32 that config.json does not tell of.
Status CheckRounding(const DeviceDecoderWeights& weights, bool rounds_whole_rows) {
  if (rounds_whole_rows) return {};
  for (const DeviceLayerWeights& layer : weights.layers) {
    for (const DeviceInputs* inputs : {&layer.down.inputs, &layer.expert_down.first.inputs}) {
      if (!inputs->RoundsWholeRows()) continue;
      return Fail(ErrorCode::kUnsupported,
                  "the checkpoint rounds the inputs of its layers otherwise than config.json says; "
                  "serve this model on one device, or with --activation-format bfloat16",
                  "tensor_parallel_size");
    }
  }
  return {};
}

// Of inputs that are brought into the order of a matrix, for the largest product.
int64_t OrderedInputs(const DecoderSpec& spec, const ModelOptions& options,
                      const DeviceDecoderWeights& weights) {
  const int64_t mlp_rows = DeviceWorkspaceLayout::For(spec, options).mlp_rows;
  int64_t numbers = 0;
  const auto add = [&](const DeviceLinearWeights& linear, int64_t rows) {
    if (linear.input_order != nullptr) numbers = std::max(numbers, rows * linear.matrix.k);
  };
  for (const DeviceLayerWeights& layer : weights.layers) {
    add(layer.qkv, options.max_rows);
    add(layer.output, options.max_rows);
    add(layer.gate_up, mlp_rows);
    add(layer.down, mlp_rows);
    add(layer.embedding_gate, mlp_rows);
    add(layer.embedding_projection, mlp_rows);
  }
  add(weights.layer_projection, options.max_rows);
  add(weights.head, options.max_rows);
  return numbers * static_cast<int64_t>(sizeof(BFloat16));
}

// `spec`: of the whole model.
DeviceWorkspaceLayout WorkspaceFor(const DecoderSpec& spec, const ModelOptions& options,
                                   const RankPlace& place, const DeviceInfo& device,
                                   const DeviceDecoderWeights& weights, const LoraLayout* lora,
                                   bool rounds_whole_rows, bool keeps_apart = false) {
  const DecoderSpec share = ShareOf(spec, place);
  DeviceWorkspaceNeeds needs;
  needs.rounds_whole_rows = rounds_whole_rows;
  needs.attention_partials = DeviceStepInputs::PartialsBytes(share, options);
  needs.linear_scratch = LinearScratch(spec, options, device, weights);
  needs.ordered_inputs = OrderedInputs(spec, options, weights);
  if (lora != nullptr) needs.lora_ranks = lora->MostRanks();
  needs.step_inputs = DeviceStepInputs::MaxBytes(
      share, options, KvGroups::For(spec, options.max_context).num_groups(), place);
  return DeviceWorkspaceLayout::For(spec, options, needs, place, keeps_apart);
}

// Of the adapters that the options have room for; none: of none.
std::optional<LoraLayout> LoraLayoutFor(const DecoderSpec& spec, const ModelOptions& options,
                                        const ParameterList& list, DecoderWeights& weights,
                                        const RankPlace& place) {
  if (options.lora.num_slots == 0) return std::nullopt;
  return LoraLayout::For(spec, options.lora, list, weights, place);
}

// Bytes of the weights that a step of one token reads: all but the embeddings' tables and the
// experts that are not chosen.
int64_t TokenWeightBytes(const DecoderSpec& spec, const ParameterList& list,
                         const DecoderWeights& unfilled, const DeviceWeightLayout& layout) {
  std::set<const kernels::PackedMatrix*> unread = {&unfilled.layer_embeddings};
  if (spec.LoadsHead() || spec.head.kind != HeadSpec::Kind::kVocabulary)
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

// Says what of the checkpoint's rounding of inputs the device does not do.
void LogUnroundedInputs(const ModelOptions& options, const DecoderWeights& loaded,
                        const DeviceDecoderWeights& weights) {
  using Rounding = ModelOptions::ActivationRounding;
  if (options.activation_format == Rounding::kBf16) return;
  int64_t asked = 0, rounded = 0;
  const auto count = [&](const LinearInputs& inputs, const DeviceLinearWeights& mine) {
    if (inputs.format.kind == ActivationFormat::Kind::kNone) return;
    ++asked;
    rounded += mine.inputs.is_rounded();
  };
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const LayerWeights& from = loaded.layers[i];
    const DeviceLayerWeights& to = weights.layers[i];
    count(from.attention.qkv.inputs, to.qkv);
    count(from.attention.output.inputs, to.output);
    if (to.gate_up.matrix.n > 0) {
      count(from.mlp.gate_up.inputs, to.gate_up);
      count(from.mlp.down.inputs, to.down);
    }
    if (to.embedding_norm != nullptr) {
      count(from.embedding.gate.inputs, to.embedding_gate);
      count(from.embedding.projection.inputs, to.embedding_projection);
    }
    if (to.router == nullptr) continue;
    count(from.moe.gate_up.inputs.front(), to.expert_gate_up.first);
    count(from.moe.down.inputs.front(), to.expert_down.first);
  }
  if (rounded == asked) return;
  const std::string text = fmt::format(
      "the checkpoint rounds the inputs of {} linear layers, the device those of {}: FP8 by tensor "
      "or by token with FP8 weights, NVFP4 with NVFP4 weights (by default on GPUs of compute "
      "capability 10.0 and later, and not for experts), where the experts of a layer have one "
      "scale; the inputs of the others are bfloat16",
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
    CHECK(place.tensor_size == 1 && place.num_stages == 1, "an encoder is computed by one rank");
    return PlanDeviceEncoder(config, options, device);
  }
  ASSIGN_OR_RETURN(const DecoderSpec spec, SpecFor(config, options, place));
  const DecoderSpec share = ShareOf(spec, place);
  DecoderWeights unfilled;
  const ParameterList list = ListParameters(spec, unfilled, place);
  const std::optional<LoraLayout> lora = LoraLayoutFor(spec, options, list, unfilled, place);
  ASSIGN_OR_RETURN(
      const DeviceWeightLayout layout,
      DeviceWeightLayout::For(spec.rope_tables, list, PlannedFormats(list, *config.scheme)));
  const DeviceRounding rounding = DeviceRounding::For(options, device);
  // Sizes alone are asked for; the address is nobody's.
  auto* const nowhere = std::bit_cast<std::byte*>(DevicePool::kAlignment);
  const DeviceDecoderWeights weights =
      PlaceWeights(share, list, unfilled, layout, rounding, nowhere);
  ModelMemory memory;
  memory.weight_bytes = layout.total_bytes();
  memory.token_weight_bytes = TokenWeightBytes(share, list, unfilled, layout);
  if (lora) memory.lora_bytes = DeviceLoraSlots::Bytes(*lora);
  memory.workspace_bytes =
      WorkspaceFor(spec, options, place, device, weights, lora ? &*lora : nullptr,
                   RoundsWholeRows(list, *config.scheme, rounding))
          .total_bytes;
  memory.graph_bytes = GraphBytes(share, options);
  memory.kv_groups = KvGroups::For(spec, options.max_context);
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

Result<std::unique_ptr<Model>> LoadDeviceShare(Device& device, DevicePool& pool,
                                               ThreadPool& threads, const Checkpoint* checkpoint,
                                               ModelConfig config, const ModelOptions& options,
                                               DeviceRank rank, const LoadProgress& progress) {
  const RankPlace& place = rank.place;
  ASSIGN_OR_RETURN(DecoderSpec spec, SpecFor(config, options, place));
  const DecoderSpec share = ShareOf(spec, place);
  const QuantizationScheme& scheme = *config.scheme;
  DecoderWeights loaded;
  const ParameterList list = ListParameters(spec, loaded, place);
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
    RETURN_IF_ERROR(FillDeviceWeights({uploader, threads, kernels, *rank.stream}, list,
                                      list.vectors, spec.rope_tables, checkpoint, scheme, options,
                                      progress, layout, memory));
  }
  if (checkpoint != nullptr && !spec.head.tokens.empty()) {
    RETURN_IF_ERROR(ReadTokenScores(*checkpoint, spec, loaded.scores));
  }
  const DeviceRounding rounding = DeviceRounding::For(options, device.info());
  DeviceDecoderWeights weights = PlaceWeights(share, list, loaded, layout, rounding, memory);
  if (place.rank() == 0) {
    if (options.kv_type == ElementType::kF8E4M3) LogKvScales(loaded);
    LogUnroundedInputs(options, loaded, weights);
  }
  const bool rounds_whole_rows = RoundsWholeRows(list, scheme, rounding);
  if (place.tensor_size > 1) RETURN_IF_ERROR(CheckRounding(weights, rounds_whole_rows));
  const DeviceWorkspaceLayout workspace_layout = WorkspaceFor(
      spec, options, place, device.info(), weights, lora_layout ? &*lora_layout : nullptr,
      rounds_whole_rows, pool.keeps_arrays_apart());
  ASSIGN_OR_RETURN(
      void* const workspace,
      pool.Take(workspace_layout.total_bytes, "the workspace of a step", workspace_layout.gaps));
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
                                            workspace_bytes + workspace_layout.step_inputs, place));
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
  if (rank.group != nullptr)
    ranks = std::make_unique<DeviceRanks>(std::move(rank.group), kernels, spec, place);
  auto model =
      std::make_unique<DeviceDecoder>(std::move(config), options, std::move(spec), place,
                                      DeviceDecoder::Parts{.device = device,
                                                           .kernels = kernels,
                                                           .stream = std::move(rank.stream),
                                                           .linear = std::move(linear),
                                                           .weights = std::move(weights),
                                                           .layout = workspace_layout,
                                                           .workspace = workspace_bytes,
                                                           .inputs = std::move(inputs),
                                                           .ranks = std::move(ranks),
                                                           .events = std::move(events),
                                                           .expert_rows = std::move(expert_rows),
                                                           .scores = std::move(loaded.scores),
                                                           .lora = std::move(lora)});
  RETURN_IF_ERROR(model->Tune());
  return model;
}

}  // namespace sluice
