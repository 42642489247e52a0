// OLMo 2 and 3: norms behind each sub-layer instead of before it, a norm over all heads of q and
// over all of k before rope; in OLMo 3 most layers see a window, with rope that nothing scales.
#include "models/family_fields.h"
#include "models/registry.h"
#include "models/rope_frequencies.h"

namespace sluice {
namespace {

void DescribeLayers(ModelConfig& config) {
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention_norms = {.before = "", .after = "post_attention_layernorm"};
    layer.mlp_norms = {.before = "", .after = "post_feedforward_layernorm"};
    layer.attention.qk_norm = QkNorm::kWholeWidth;
    layer.mlp.has_bias = false;
  }
}

// Source: transformers' Olmo2Config and Olmo2DecoderLayer.
Status ReadOlmo2(const JsonFields& fields, ModelConfig& config) {
  DescribeLayers(config);
  return ReadFullAttention(fields, config);
}

// Source: transformers' Olmo3Config and Olmo3Model.
Status ReadOlmo3(const JsonFields& fields, ModelConfig& config) {
  DescribeLayers(config);
  ASSIGN_OR_RETURN(const auto types,
                   ReadLayerTypes(fields, config, {kFullAttention, kSlidingAttention}));
  ASSIGN_OR_RETURN(const auto window, fields.Integer("sliding_window", 1, kMaxConfigPositions));
  constexpr int64_t kDefaultWindow = 4096, kDefaultPattern = 4;
  RopeConfig local = {.theta = config.rope.theta};
  RETURN_IF_ERROR(ReadRopeBlocks(fields, config.rope.theta, config, local));
  config.spec.rope_tables = {RopeTableOf(config.rope, config.head_dim),
                             RopeTableOf(local, config.head_dim)};
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    const bool slides = types ? (*types)[i] == kSlidingAttention
                              : static_cast<int64_t>(i + 1) % kDefaultPattern != 0;
    if (!slides) continue;
    AttentionSpec& attention = config.spec.layers[i].attention;
    attention.span.window = static_cast<int32_t>(window.value_or(kDefaultWindow));
    attention.rope_table = 1;
  }
  return {};
}

constexpr ConfigDefaults DefaultsOf(double theta) {
  return {.rms_norm_eps = 1e-5, .rope_theta = theta};
}

}  // namespace

const ModelFamily kOlmo2 = {"Olmo2ForCausalLM",
                            "olmo2",
                            DefaultsOf(10000),
                            ReadOlmo2,
                            {.models = "OLMo 2 1B to 32B",
                             .operators = "norms behind sub-layers alone; a norm over all heads",
                             .golden = "tiny-olmo2",
                             .error = 9.1e-07}};
const ModelFamily kOlmo3 = {
    "Olmo3ForCausalLM",
    "olmo3",
    DefaultsOf(500000),
    ReadOlmo3,
    {.models = "OLMo 3 7B, 32B",
     .operators = "as OLMo 2; windows in three of four layers, YaRN in the others",
     .golden = "tiny-olmo3",
     .error = 8.2e-07}};

}  // namespace sluice
