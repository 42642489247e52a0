// Qwen3 dense, and Qwen3-VL, whose RoPE also uses rows and columns of images: like Llama, but with
// per-head RMS norms of q and k before RoPE, and a sliding window if config.json enables it. Only
// attention has biases.
#include "models/families/qwen3.h"

#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace qwen3 {
namespace {

Status Read(const JsonFields& fields, ModelConfig& config) {
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.qk_norm = QkNorm::kBeforeRope;
    layer.mlp.has_bias = false;
  }
  return ReadSlidingAttention(fields, config);
}

// Source: transformers' Qwen3Config.
constexpr ConfigDefaults kDefaults = {.vocab_size = 151936,
                                      .hidden_size = 4096,
                                      .intermediate_size = 22016,
                                      .num_hidden_layers = 32,
                                      .num_attention_heads = 32,
                                      .kv_heads = 32,
                                      .head_dim = 128,
                                      .max_position_embeddings = 32768};

Status ReadVl(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(Read(fields, config));
  return ReadQwen3VlImages(fields, config);
}

// Source: transformers' Qwen3VLTextConfig.
constexpr ConfigDefaults kVlDefaults = {.vocab_size = 151936,
                                        .hidden_size = 4096,
                                        .intermediate_size = 22016,
                                        .num_hidden_layers = 32,
                                        .num_attention_heads = 32,
                                        .kv_heads = 32,
                                        .head_dim = 128,
                                        .max_position_embeddings = 128000,
                                        .rope_theta = 500000,
                                        .is_nested = true};

}  // namespace
}  // namespace qwen3

// Rows of the tower are added after each of the first layers: as many layers as
// deepstack_visual_indexes has entries.
Status ReadQwen3VlImages(const JsonFields& fields, ModelConfig& config) {
  const JsonFields outer(config.raw, "");
  ASSIGN_OR_RETURN(const json::Value* vision, outer.Object("vision_config"));
  if (vision != nullptr) {
    ASSIGN_OR_RETURN(const auto levels,
                     JsonFields(*vision, "vision_config.")
                         .Integers("deepstack_visual_indexes", 0, kMaxConfigLayers));
    constexpr int64_t kDefaultLevels = 3;
    config.spec.image_levels = levels ? std::ssize(*levels) : kDefaultLevels;
  }
  return ReadRopeAxes(fields, {24, 20, 20}, /*interleaves=*/true, config);
}

const ModelFamily kQwen3Vl = {
    "Qwen3VLForConditionalGeneration",
    "qwen3_vl",
    qwen3::kVlDefaults,
    qwen3::ReadVl,
    {.models = "Qwen3-VL 2B to 32B",
     .operators = "like Qwen3; M-RoPE (time, row, column), interleaved; images: interpolated "
                  "positions, 2-D rope, image features also added after the first layers",
     .golden = "tiny-qwen3-vl",
     .error = 7.8e-07}};
const ModelFamily kQwen3 = {"Qwen3ForCausalLM",
                            "qwen3",
                            qwen3::kDefaults,
                            qwen3::Read,
                            {.models = "Qwen3 0.6B to 32B",
                             .operators = "per-head norms; a window, if configured",
                             .golden = "qwen3-bf16, tiny-qwen3-bias, tiny-qwen3-narrow and "
                                       "eight quantized ones",
                             .error = 5e-06}};

}  // namespace sluice
