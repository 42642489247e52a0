// Command R and A: layer norms without biases, attention and MLP side by side, interleaved rope,
// scaled logits; in Command R7B and A most layers see a window, the others have no rope.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace cohere {
namespace {

Status DescribeLayers(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto scale, fields.Number("logit_scale", 1e-6, 1e6));
  config.spec.logit_scale = static_cast<float>(scale.value_or(0.0625));
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
  RETURN_IF_ERROR(RefuseField(fields, "use_qk_norm", "layer norms of heads"));
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

constexpr ConfigDefaults DefaultsOf(double theta) {
  return {.vocab_size = 256000,
          .hidden_size = 8192,
          .intermediate_size = 22528,
          .num_hidden_layers = 40,
          .num_attention_heads = 64,
          .max_position_embeddings = 8192,
          .rms_norm_eps = 1e-5,
          .norm_eps_field = "layer_norm_eps",
          .has_layer_norms = true,
          .rope_theta = theta,
          .bos_token_id = 5,
          .eos_token_id = 255001,
          .tie_word_embeddings = true};
}

}  // namespace
}  // namespace cohere

const ModelFamily kCohere = {"CohereForCausalLM",
                             "cohere",
                             cohere::DefaultsOf(500000),
                             cohere::ReadCohere,
                             {.models = "Command R 35B, Aya 23 and Expanse",
                              .operators = "layer norms without biases; attention and MLP side by "
                                           "side; interleaved rope; scaled logits",
                              .golden = "tiny-cohere",
                              .error = 7.6e-07}};
const ModelFamily kCohere2 = {"Cohere2ForCausalLM",
                              "cohere2",
                              cohere::DefaultsOf(10000),
                              cohere::ReadCohere2,
                              {.models = "Command R7B, Command A",
                               .operators = "as Cohere; windows, and no rope in the other layers",
                               .golden = "tiny-cohere2",
                               .error = 1.1e-06}};

}  // namespace sluice
