// Qwen3-Next and Qwen3.5: Gated DeltaNet in most layers, attention with gated results in the
// others; norm weights w stand for 1 + w; experts and a shared expert. Of models for text and
// images, only the text part is supported.
#include <fmt/format.h>

#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace qwen3_next {
namespace {

Result<std::vector<bool>> ReadDeltaLayers(const JsonFields& fields, const ModelConfig& config) {
  constexpr size_t kDefaultInterval = 4;
  ASSIGN_OR_RETURN(const auto types,
                   ReadLayerTypes(fields, config, {kFullAttention, kLinearAttention}));
  ASSIGN_OR_RETURN(const auto interval,
                   fields.Integer("full_attention_interval", 1, kMaxConfigLayers));
  const size_t every = static_cast<size_t>(interval.value_or(kDefaultInterval));
  std::vector<bool> mixes;
  for (size_t i = 0; i < config.spec.layers.size(); ++i)
    mixes.push_back(types ? (*types)[i] == kLinearAttention : (i + 1) % every != 0);
  return mixes;
}

// Source: transformers' Qwen3NextAttention and Qwen3NextRMSNorm.
Status ReadLayers(const JsonFields& fields, MixerSpec::Projections projections,
                  ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto has_gate, fields.Bool("attn_output_gate"));
  if (!has_gate.value_or(true)) {
    return Fail(
        ErrorCode::kUnsupported,
        "attn_output_gate false is not supported: attention of this architecture has a gate",
        "attn_output_gate");
  }
  ASSIGN_OR_RETURN(const std::vector<bool> mixes, ReadDeltaLayers(fields, config));
  ASSIGN_OR_RETURN(MixerSpec mixer, ReadDeltaRule(fields, {}, config));
  mixer.projections = projections;
  config.spec.norm_weight_offset = 1;
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.qk_norm = QkNorm::kBeforeRope;
    layer.attention.gate = AttentionGate::kInQueries;
    layer.mlp.has_bias = false;
  }
  return ReplaceAttention(mixes, mixer, config);
}

// Source: transformers' Qwen3NextSparseMoeBlock.
Status ReadExperts(const JsonFields& fields, const ExpertDefaults& defaults, ModelConfig& config) {
  MoeSpec moe = {.router_module = "mlp.gate",
                 .experts_module = "mlp.experts",
                 .activation = config.activation,
                 .score = kernels::RouterScore::kSoftmax};
  RETURN_IF_ERROR(ReadExpertCounts(fields, defaults, moe));
  ASSIGN_OR_RETURN(const auto shared,
                   fields.Integer("shared_expert_intermediate_size", 1, kMaxConfigWidth));
  ASSIGN_OR_RETURN(const auto normalize, fields.Bool("norm_topk_prob"));
  moe.normalize = normalize.value_or(true);
  ASSIGN_OR_RETURN(const std::vector<bool> has_experts, ReadSparseLayers(fields, config));
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    if (!has_experts[i]) continue;
    layer.mlp.module = "mlp.shared_expert";
    layer.mlp.intermediate_size = shared.value_or(512);
    layer.mlp.output_gate = "mlp.shared_expert_gate";
    layer.moe = moe;
  }
  return {};
}

Status ReadNext(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadLayers(fields, MixerSpec::Projections::kByKeyHead, config));
  return ReadExperts(fields, {.num_experts = 512, .top_k = 10, .intermediate_size = 512}, config);
}

Status Read(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadLayers(fields, MixerSpec::Projections::kByKind, config));
  return ReadRopeAxes(fields, {11, 11, 10}, /*interleaves=*/true, config);
}

Status ReadMoe(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(Read(fields, config));
  return ReadExperts(fields, {.num_experts = 256, .top_k = 8, .intermediate_size = 512}, config);
}

constexpr ConfigDefaults kNextDefaults = {.vocab_size = 151936,
                                          .hidden_size = 2048,
                                          .intermediate_size = 5632,
                                          .num_hidden_layers = 48,
                                          .num_attention_heads = 16,
                                          .kv_heads = 2,
                                          .head_dim = 256,
                                          .max_position_embeddings = 32768,
                                          .partial_rotary_factor = 0.25};

constexpr ConfigDefaults DefaultsOf(bool is_nested) {
  return {.vocab_size = 248320,
          .hidden_size = 4096,
          .intermediate_size = 12288,
          .num_hidden_layers = 32,
          .num_attention_heads = 16,
          .kv_heads = 4,
          .head_dim = 256,
          .max_position_embeddings = 32768,
          .partial_rotary_factor = 0.25,
          .is_nested = is_nested};
}

constexpr ConfigDefaults MoeDefaultsOf(bool is_nested) {
  ConfigDefaults defaults = DefaultsOf(is_nested);
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 512;  // there are no layers without experts
  defaults.num_hidden_layers = 40;
  defaults.kv_heads = 2;
  return defaults;
}

}  // namespace
}  // namespace qwen3_next

const ModelFamily kQwen3Next = {
    "Qwen3NextForCausalLM",
    "qwen3_next",
    qwen3_next::kNextDefaults,
    qwen3_next::ReadNext,
    {.models = "Qwen3-Next 80B-A3B",
     .operators = "Gated DeltaNet instead of attention in most layers; a gate after attention; "
                  "partial rope; experts with a softmax router; a shared expert with a gate",
     .golden = "tiny-qwen3-next",
     .error = 5.8e-06}};
const ModelFamily kQwen35 = {"Qwen3_5ForCausalLM",
                             "qwen3_5_text",
                             qwen3_next::DefaultsOf(false),
                             qwen3_next::Read,
                             {.models = "the text models of Qwen3.5 and 3.6",
                              .operators = "like Qwen3-Next, without experts",
                              .golden = "tiny-qwen3.5",
                              .error = 5.9e-06}};
const ModelFamily kQwen35Moe = {
    "Qwen3_5MoeForCausalLM",
    "qwen3_5_moe_text",
    qwen3_next::MoeDefaultsOf(false),
    qwen3_next::ReadMoe,
    {.models = "the text models of Qwen3.5 and 3.6 with experts", .operators = "like Qwen3-Next"}};
const ModelFamily kQwen35Nested = {
    "Qwen3_5ForConditionalGeneration",
    "qwen3_5",
    qwen3_next::DefaultsOf(true),
    qwen3_next::Read,
    {.models = "Qwen3.5 0.8B to 27B, Qwen3.6 27B",
     .operators =
         "like Qwen3_5ForCausalLM; M-RoPE (time, row, column), interleaved; images: like Qwen3-VL",
     .golden = "tiny-qwen3.5-vl",
     .error = 6e-06}};
const ModelFamily kQwen35MoeNested = {"Qwen3_5MoeForConditionalGeneration",
                                      "qwen3_5_moe",
                                      qwen3_next::MoeDefaultsOf(true),
                                      qwen3_next::ReadMoe,
                                      {.models = "Qwen3.5 35B-A3B to 397B-A17B, Qwen3.6 35B-A3B",
                                       .operators = "like Qwen3_5MoeForCausalLM; rope and images "
                                                    "like Qwen3_5ForConditionalGeneration"}};

}  // namespace sluice
