// Granite 3 and 4: like Llama, but with factors on the embedding, on each sublayer's result before
// the residual, on q . k and on the logits. Granite 4 has other names for the MLP's modules. It may
// have layers without RoPE, Mamba-2 instead of attention in most layers, and experts in parallel
// with the MLP.
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "models/family_fields.h"
#include "models/registry.h"
#include "models/rope_frequencies.h"
#include "models/state_space_fields.h"

namespace sluice {
namespace granite {
namespace {

Status ReadMultipliers(const JsonFields& fields, ModelConfig& config) {
  const auto read = [&](const char* name) -> Result<float> {
    ASSIGN_OR_RETURN(const auto given, fields.Number(name, 1e-6, 1e6));
    return static_cast<float>(given.value_or(1));
  };
  ASSIGN_OR_RETURN(config.spec.embedding_scale, read("embedding_multiplier"));
  ASSIGN_OR_RETURN(config.spec.residual_scale, read("residual_multiplier"));
  ASSIGN_OR_RETURN(const float logits, read("logits_scaling"));
  config.spec.logit_scale = 1 / logits;
  ASSIGN_OR_RETURN(const float attention, read("attention_multiplier"));
  for (LayerSpec& layer : config.spec.layers) layer.attention.scale = attention;
  return {};
}

// Source: transformers' GraniteConfig and GraniteModel.
Status Read(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFullAttention(fields, config));
  return ReadMultipliers(fields, config);
}

// Reads HyperCLOVA X. It has norms after sublayers if configured, and logits are multiplied by a
// factor, not divided. Source: transformers' HyperCLOVAXConfig and HyperCLOVAXDecoderLayer.
Status ReadHyperClovaX(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(Read(fields, config));
  ASSIGN_OR_RETURN(const auto post_norm, fields.Bool("use_post_norm"));
  config.spec.logit_scale = 1 / config.spec.logit_scale;
  for (LayerSpec& layer : config.spec.layers) {
    if (fields.Given("attention_multiplier") == nullptr) layer.attention.scale = std::nullopt;
    if (!post_norm.value_or(true)) continue;
    layer.attention_norms.after = "post_norm1";
    layer.mlp_norms.after = "post_norm2";
  }
  return {};
}

// Reads a RoPE base per layer (0: no RoPE). Each distinct base gets a table.
Status ReadLayerRopes(const JsonFields& fields, ModelConfig& config) {
  constexpr const char* kField = "layer_rope_theta";
  constexpr size_t kMostTables = 64;
  ASSIGN_OR_RETURN(const json::Value::Array* list, fields.Array(kField));
  if (list == nullptr) return {};
  if (std::ssize(*list) != config.num_hidden_layers)
    return fields.Bad(kField, "a number for each layer", *fields.Given(kField));
  std::vector<double> bases = {config.rope.theta};
  for (size_t i = 0; i < list->size(); ++i) {
    const json::Value& value = (*list)[i];
    if (!value.is_number() || !(value.as_double() >= 0 && value.as_double() <= 1e12))
      return fields.Bad(kField, "numbers from 0 to 1e12", value);
    AttentionSpec& attention = config.spec.layers[i].attention;
    attention.rope = value.as_double() != 0;
    if (!attention.rope) continue;
    auto found = std::find(bases.begin(), bases.end(), value.as_double());
    if (found == bases.end()) {
      if (bases.size() == kMostTables || config.rope.scaling) {
        return Fail(ErrorCode::kUnsupported,
                    fmt::format("{} is not supported with more than {} bases, nor with a scaling "
                                "of rope",
                                kField, kMostTables),
                    kField);
      }
      found = bases.insert(bases.end(), value.as_double());
      config.spec.rope_tables.push_back(
          RopeTableOf(RopeConfig{.theta = value.as_double()}, config.rotary_dim));
    }
    attention.rope_table = static_cast<int>(found - bases.begin());
  }
  return {};
}

// Reads a window in three of four layers (not in the first of the four), and sinks. Source:
// transformers' GraniteSWAConfig and GraniteSWAAttention.
Status ReadWindowsAndSinks(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto types,
                   ReadLayerTypes(fields, config, {kFullAttention, kSlidingAttention}));
  ASSIGN_OR_RETURN(const auto window, fields.Integer("sliding_window", 1, kMaxConfigPositions));
  constexpr int64_t kDefaultWindow = 128;
  constexpr size_t kPattern = 4;
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    AttentionSpec& attention = config.spec.layers[i].attention;
    attention.sinks = true;
    if (types ? (*types)[i] != kSlidingAttention : i % kPattern == 0) continue;
    if (!window && fields.Has("sliding_window")) return fields.Missing("sliding_window");
    attention.span.window = static_cast<int32_t>(window.value_or(kDefaultWindow));
  }
  return ReadLayerRopes(fields, config);
}

Status ReadSwa(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadWindowsAndSinks(fields, config));
  return ReadMultipliers(fields, config);
}

// Returns experts whose tensors contain all experts and have the MLP's names; nullopt if there are
// none.
Result<std::optional<MoeSpec>> ReadHybridExperts(const JsonFields& fields,
                                                 const ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto experts, fields.Integer("num_local_experts", 0, kMaxConfigExperts));
  if (experts == 0) return std::nullopt;
  // A softmax over the chosen experts equals a softmax over all experts that is normalized over the
  // chosen ones.
  MoeSpec moe = {.router_module = "block_sparse_moe.router.layer",
                 .experts_module = "block_sparse_moe",
                 .fused_gate_up = "input_linear.weight",
                 .fused_down = "output_linear.weight",
                 .intermediate_size = config.intermediate_size,
                 .activation = config.activation,
                 .normalize = true};
  RETURN_IF_ERROR(ReadExpertCounts(fields, {.num_experts = 8, .top_k = 2}, moe));
  return moe;
}

// Describes Granite 3 with experts. If `shared` is not 0, an MLP of that width runs in parallel
// with them.
Status DescribeMoe(const JsonFields& fields, int64_t shared, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto moe, ReadHybridExperts(fields, config));
  if (!moe) return fields.Bad("num_local_experts", "at least 1", json::Value(int64_t{0}));
  for (LayerSpec& layer : config.spec.layers) {
    layer.mlp.module = "shared_mlp";
    layer.mlp.gate_up_projection = "input_linear";
    layer.mlp.down_projection = "output_linear";
    layer.mlp.intermediate_size = shared;
    layer.mlp.has_bias = false;
    layer.moe = moe;
  }
  return ReadMultipliers(fields, config);
}

// Source: transformers' GraniteMoeConfig and GraniteMoeMoE.
Status ReadMoe(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFullAttention(fields, config));
  return DescribeMoe(fields, /*shared=*/0, config);
}

// Source: transformers' GraniteMoeSharedConfig and GraniteMoeSharedDecoderLayer.
Status DescribeMoeShared(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto shared,
                   fields.Integer("shared_intermediate_size", 0, kMaxConfigWidth));
  return DescribeMoe(fields, shared.value_or(0), config);
}
Status ReadMoeShared(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFullAttention(fields, config));
  return DescribeMoeShared(fields, config);
}
// Describes the same experts as ReadMoe, under other names.
Status ReadMoeSwa(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadWindowsAndSinks(fields, config));
  RETURN_IF_ERROR(DescribeMoeShared(fields, config));
  for (LayerSpec& layer : config.spec.layers) {
    layer.moe->router_module = "block_sparse_moe.router";
    layer.moe->experts_module = "block_sparse_moe.experts";
    layer.moe->fused_gate_up = "gate_up_proj";
    layer.moe->fused_down = "down_proj";
  }
  return {};
}

// Source: transformers' GraniteMoeHybridConfig, GraniteMoeHybridMoE and GraniteMoeHybridMambaLayer.
Status ReadHybrid(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto moe, ReadHybridExperts(fields, config));
  ASSIGN_OR_RETURN(
      const auto types,
      ReadLayerTypes(fields, config, {"attention", kFullAttention, "mamba", kLinearAttention}));
  // Without layer_types, every layer would be a state space layer; such files are refused.
  if (!types) return fields.Missing("layer_types");
  ASSIGN_OR_RETURN(const auto positions, fields.String("position_embedding_type"));
  if (positions && *positions != "rope" && *positions != "nope") {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("position_embedding_type '{}' is not supported; supported are rope and "
                            "nope",
                            ShortName(*positions)),
                "position_embedding_type");
  }
  ASSIGN_OR_RETURN(const auto width,
                   fields.Integer("shared_intermediate_size", 1, kMaxConfigWidth));
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.rope = positions == "rope";
    layer.mlp.module = "shared_mlp";
    layer.mlp.gate_up_projection = "input_linear";
    layer.mlp.down_projection = "output_linear";
    layer.mlp.intermediate_size = width.value_or(1024);
    layer.mlp.has_bias = false;
    layer.moe = moe;
  }
  config.intermediate_size = config.spec.layers.front().mlp.intermediate_size;
  RETURN_IF_ERROR(ReadMultipliers(fields, config));
  std::vector<bool> mixes;
  for (const std::string& type : *types)
    mixes.push_back(type == "mamba" || type == kLinearAttention);
  if (std::ranges::none_of(mixes, [](bool one) { return one; })) return {};
  ASSIGN_OR_RETURN(const MixerSpec mixer, ReadStateSpace(fields, config));
  return ReplaceAttention(mixes, mixer, config);
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 32000,
                                      .hidden_size = 4096,
                                      .intermediate_size = 11008,
                                      .num_hidden_layers = 32,
                                      .num_attention_heads = 32,
                                      .max_position_embeddings = 2048,
                                      .bos_token_id = 1,
                                      .eos_token_id = 2};

constexpr ConfigDefaults kSwaDefaults = {.vocab_size = 100352,
                                         .hidden_size = 2560,
                                         .intermediate_size = 8192,
                                         .num_hidden_layers = 24,
                                         .num_attention_heads = 20,
                                         .kv_heads = 4,
                                         .max_position_embeddings = 8192,
                                         .rms_norm_eps = 1e-5,
                                         .bos_token_id = 100257,
                                         .eos_token_id = 100257,
                                         .tie_word_embeddings = true};

}  // namespace
}  // namespace granite

const ModelFamily kGraniteSwa = {
    "GraniteSWAForCausalLM",
    "granite_swa",
    granite::kSwaDefaults,
    granite::ReadSwa,
    {.models = "Granite Swash 2B",
     .operators = "like Granite 3; attention sinks; windows in three of four layers, with their "
                  "own rope or without rope",
     .golden = "tiny-granite-swa",
     .error = 3.4e-06}};
const ModelFamily kGraniteMoeSwa = {
    "GraniteMoeSWAForCausalLM",
    "granitemoe_swa",
    granite::kDefaults,
    granite::ReadMoeSwa,
    {.models = "Granite Swash 3B-A600M",
     .operators = "like Granite Swash; experts with a softmax router and normalized routing "
                  "weights, in parallel with an MLP",
     .golden = "tiny-granitemoe-swa",
     .error = 8e-07}};
const ModelFamily kHyperClovaX = {"HyperCLOVAXForCausalLM",
                                  "hyperclovax",
                                  granite::kDefaults,
                                  granite::ReadHyperClovaX,
                                  {.models = "HyperCLOVA X SEED 14B",
                                   .operators = "like Granite 3; norms after sublayers",
                                   .golden = "tiny-hyperclovax",
                                   .error = 8.1e-07}};
const ModelFamily kGranite = {
    "GraniteForCausalLM",
    "granite",
    granite::kDefaults,
    granite::Read,
    {.models = "Granite 3.0 to 3.3, 2B and 8B",
     .operators = "multipliers for embeddings, residual, scores and logits",
     .golden = "tiny-granite",
     .error = 2.7e-06}};
const ModelFamily kGraniteMoe = {
    "GraniteMoeForCausalLM",
    "granitemoe",
    granite::kDefaults,
    granite::ReadMoe,
    {.models = "Granite 3.0 and 3.1 1B-A400M, 3B-A800M",
     .operators = "like Granite 3; experts with a softmax router and normalized routing weights",
     .golden = "tiny-granitemoe",
     .error = 5.2e-06}};
const ModelFamily kGraniteMoeShared = {
    "GraniteMoeSharedForCausalLM",
    "granitemoeshared",
    granite::kDefaults,
    granite::ReadMoeShared,
    {.models = "Granite MoE with a shared MLP",
     .operators = "like Granite MoE; an MLP in parallel with the experts",
     .golden = "tiny-granitemoe-shared",
     .error = 5.3e-07}};
const ModelFamily kGraniteHybrid = {
    "GraniteMoeHybridForCausalLM",
    "granitemoehybrid",
    granite::kDefaults,
    granite::ReadHybrid,
    {.models = "Granite 4.0 Micro, Tiny, Small, 1B, 350M, with "
               "and without H",
     .operators = "like Granite 3; Mamba-2 instead of attention in most layers; with and without "
                  "rope; experts in parallel with the MLP",
     .golden = "tiny-granite4, tiny-granite4-experts, "
               "tiny-granite4-hybrid",
     .error = 8.1e-06}};

}  // namespace sluice
