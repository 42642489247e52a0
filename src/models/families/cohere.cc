// Command R and A: layer norms without biases, attention and MLP in parallel, interleaved RoPE,
// scaled logits. In Command R7B and A, most layers have a window, and the others have no RoPE.
// North Micro Vision: RoPE on both halves of a head, with separate settings in layers with a
// window.
#include <algorithm>

#include "models/family_fields.h"
#include "models/kind_ropes.h"
#include "models/latent_fields.h"
#include "models/registry.h"

namespace sluice {
namespace cohere {
namespace {

Status DescribeLayers(const JsonFields& fields, ModelConfig& config,
                      double default_logit_scale = 0.0625) {
  ASSIGN_OR_RETURN(const auto scale, fields.Number("logit_scale", 1e-6, 1e6));
  config.spec.logit_scale = static_cast<float>(scale.value_or(default_logit_scale));
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.rope_style = kernels::RopeStyle::kInterleaved;
    layer.is_parallel = true;
    layer.mlp_norms.before = layer.attention_norms.before;
    layer.mlp.has_bias = false;
  }
  return {};
}

// Source: transformers' CohereConfig and CohereDecoderLayer.
Status ReadCohere(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFullAttention(fields, config));
  ASSIGN_OR_RETURN(const auto norms_heads, fields.Bool("use_qk_norm"));
  for (LayerSpec& layer : config.spec.layers) {
    if (!norms_heads.value_or(false)) continue;
    layer.attention.qk_norm = QkNorm::kLayerBeforeRope;
    layer.attention.qk_norm_of_heads = true;
  }
  return DescribeLayers(fields, config);
}

// Source: transformers' Cohere2Config and Cohere2Attention.
Status ReadCohere2(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const std::vector<bool> slides, ReadWindowLayers(fields, {}, config));
  RETURN_IF_ERROR(DescribeLayers(fields, config));
  const bool has_windows =
      fields.Given("sliding_window") != nullptr || !fields.Has("sliding_window");
  for (size_t i = 0; i < slides.size(); ++i)
    config.spec.layers[i].attention.rope = slides[i] && has_windows;
  return {};
}

// Source: transformers' CohereCompassTextConfig, CohereCompassAttention and
// CohereCompassRotaryEmbedding, whose axes have equal positions in text.
Status ReadCompass(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto types,
                   ReadLayerTypes(fields, config, {kFullAttention, kSlidingAttention}));
  ASSIGN_OR_RETURN(const auto window, fields.Integer("sliding_window", 1, kMaxConfigPositions));
  RETURN_IF_ERROR(DescribeLayers(fields, config, /*default_logit_scale=*/1));
  constexpr int64_t kDefaultWindow = 4096;
  std::vector<bool> slides;
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    slides.push_back(types && (*types)[i] == kSlidingAttention);
    AttentionSpec& attention = config.spec.layers[i].attention;
    attention.rope_style = kernels::RopeStyle::kHalf;
    if (!slides[i]) continue;
    if (!window && fields.Has("sliding_window")) return fields.Missing("sliding_window");
    attention.span.window = static_cast<int32_t>(window.value_or(kDefaultWindow));
  }
  return ReadKindRopes(fields, {.may_be_null = true}, slides, config);
}

// Returns which layers have a window. The first `dense` layers have no experts and follow a
// different pattern than the others.
Result<std::vector<bool>> ReadMoeWindows(const JsonFields& fields, int64_t dense, int64_t prefix,
                                         ModelConfig& config) {
  ASSIGN_OR_RETURN(std::vector<bool> slides,
                   ReadWindowLayers(fields, {.pattern_field = ""}, config));
  if (fields.Given("layer_types") != nullptr) return slides;
  ASSIGN_OR_RETURN(const auto pattern,
                   fields.Integer("sliding_window_pattern", 1, kMaxConfigLayers));
  ASSIGN_OR_RETURN(const auto window, fields.Integer("sliding_window", 1, kMaxConfigPositions));
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const bool is_full =
        i < dense ? (i + 1) % prefix == 0 : (i - dense + 1) % pattern.value_or(4) == 0;
    const auto index = static_cast<size_t>(i);
    slides[index] = !is_full;
    config.spec.layers[index].attention.span.window =
        is_full ? 0 : static_cast<int32_t>(window.value_or(4096));
  }
  return slides;
}

// Source: transformers' Cohere2MoeConfig, Cohere2MoeTopKRouter and Cohere2MoeSparseMoeBlock.
Result<MoeSpec> ReadMoe(const JsonFields& fields, bool averages, const ModelConfig& config) {
  MoeSpec moe = {.router_module = "mlp.gate",
                 .experts_module = "mlp.experts",
                 .activation = config.activation};
  RETURN_IF_ERROR(ReadExpertCounts(fields, {.num_experts = 8, .top_k = 2}, moe));
  moe.intermediate_size = config.intermediate_size;
  constexpr const char* kScore = "expert_selection_fn";
  RETURN_IF_ERROR(CheckMethod(fields, kScore, {"softmax", "sigmoid"}));
  ASSIGN_OR_RETURN(const auto score, fields.String(kScore));
  ASSIGN_OR_RETURN(const auto normalize, fields.Bool("norm_topk_prob"));
  const bool is_sigmoid = score == "sigmoid";
  moe.score = is_sigmoid ? kernels::RouterScore::kSigmoid : kernels::RouterScore::kSoftmax;
  // A softmax over only the chosen logits gives the same weights as a normalized softmax over all.
  moe.normalize = !is_sigmoid || normalize.value_or(true);
  if (averages) moe.weight_scale = 0.5F;
  return moe;
}

Status ReadCohere2Moe(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto first, fields.Integer("first_k_dense_replace", 0, kMaxConfigLayers));
  const int64_t dense = first.value_or(0);
  ASSIGN_OR_RETURN(const auto prefix,
                   fields.Integer("prefix_dense_sliding_window_pattern", 1, kMaxConfigLayers));
  ASSIGN_OR_RETURN(const auto dense_width,
                   fields.Integer("prefix_dense_intermediate_size", 1, kMaxConfigWidth));
  ASSIGN_OR_RETURN(const auto rms_eps, fields.Number("rms_norm_eps", 0, 1));
  ASSIGN_OR_RETURN(const std::vector<bool> slides,
                   ReadMoeWindows(fields, dense, prefix.value_or(1), config));
  ASSIGN_OR_RETURN(const std::vector<bool> sparse, ReadMlpLayerTypes(fields, config, dense));
  constexpr const char* kStrategy = "shared_expert_combination_strategy";
  RETURN_IF_ERROR(CheckMethod(fields, kStrategy, {"average", "sum"}));
  ASSIGN_OR_RETURN(const auto strategy, fields.String(kStrategy));
  ASSIGN_OR_RETURN(const auto shared, fields.Integer("num_shared_experts", 0, kMaxConfigExperts));
  const bool averages = shared.value_or(0) > 0 && strategy != "sum";
  ASSIGN_OR_RETURN(const MoeSpec moe, ReadMoe(fields, averages, config));
  RETURN_IF_ERROR(DescribeLayers(fields, config));
  if (rms_eps) {
    config.spec.norm.kind = NormSpec::Kind::kRms;
    config.spec.norm_eps = static_cast<float>(*rms_eps);
  }
  const bool has_windows =
      fields.Given("sliding_window") != nullptr || !fields.Has("sliding_window");
  for (size_t i = 0; i < slides.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    const bool is_forced = !sparse[i] && prefix.value_or(1) == 1;
    layer.attention.rope = (slides[i] && has_windows) || is_forced;
    if (!sparse[i]) {
      layer.mlp.intermediate_size = dense_width.value_or(config.intermediate_size);
      continue;
    }
    layer.mlp.module = "mlp.shared_experts";
    layer.mlp.intermediate_size = config.intermediate_size * shared.value_or(0);
    if (averages) layer.mlp.output_factor = 0.5F;
    layer.moe = moe;
  }
  return {};
}

constexpr ConfigDefaults DefaultsOf(double theta, int64_t head_dim = 0) {
  return {.vocab_size = 256000,
          .hidden_size = 8192,
          .intermediate_size = 22528,
          .num_hidden_layers = 40,
          .num_attention_heads = 64,
          .head_dim = head_dim,
          .max_position_embeddings = 8192,
          .rms_norm_eps = 1e-5,
          .norm_eps_field = "layer_norm_eps",
          .has_layer_norms = true,
          .rope_theta = theta,
          .bos_token_id = 5,
          .eos_token_id = 255001,
          .tie_word_embeddings = true};
}

constexpr std::string_view kCompassTexts[] = {"cohere_compass_text"};

}  // namespace
}  // namespace cohere

const ModelFamily kCohere = {
    "CohereForCausalLM",
    "cohere",
    cohere::DefaultsOf(500000),
    cohere::ReadCohere,
    {.models = "Command R 35B, R+ 104B, Aya 23 and Expanse",
     .operators = "layer norms without biases; in R+ also per-head norms; attention and MLP in "
                  "parallel; interleaved rope; scaled logits",
     .golden = "tiny-cohere, tiny-cohere-heads",
     .error = 7.6e-07}};
const ModelFamily kCohere2 = {
    "Cohere2ForCausalLM",
    "cohere2",
    cohere::DefaultsOf(10000),
    cohere::ReadCohere2,
    {.models = "Command R7B, Command A",
     .operators = "like Cohere; windows; no rope in layers without a window",
     .golden = "tiny-cohere2",
     .error = 1.1e-06}};
const ModelFamily kCohereCompassText = {
    "CohereCompassForCausalLM",
    "cohere_compass_text",
    cohere::DefaultsOf(10000),
    cohere::ReadCompass,
    {.models = "the text model of North Micro Vision",
     .operators =
         "like Cohere 2, with non-interleaved rope; each kind of layer has its own rope or none",
     .golden = "tiny-cohere-compass",
     .error = 4.1e-07}};
const ModelFamily kCohereCompass = {
    .architecture = "CohereCompassForConditionalGeneration",
    .model_type = "cohere_compass",
    .defaults = {.tie_word_embeddings = true, .is_nested = true},
    .read = nullptr,
    .notes = {.models = "North Micro Vision",
              .operators = "the text part: like CohereCompassForCausalLM"},
    .text_types = cohere::kCompassTexts};
const ModelFamily kCohere2Moe = {
    "Cohere2MoeForCausalLM",
    "cohere2_moe",
    cohere::DefaultsOf(10000, 128),
    cohere::ReadCohere2Moe,
    {.models = "Command A+ (05-2026)",
     .operators =
         "like Cohere 2, with RMS norms if configured; experts with a softmax or sigmoid router; "
         "their result is added to the shared experts' result, or averaged with it",
     .golden = "tiny-cohere2-moe, tiny-cohere2-moe-sum",
     .error = 4.2e-07}};

}  // namespace sluice
