// GLM's towers: Qwen's patches and RoPE, RMS norms, a convolution that merges patches.
#include <cmath>

#include "models/tower/tower_fields.h"

namespace sluice {
namespace {

Result<TowerSpec> ReadGlmTower(const TowerFields& fields, const TowerDefaults& defaults) {
  ASSIGN_OR_RETURN(TowerSpec spec, ReadQwenTower(fields, defaults, /*patch_bias=*/true));
  ASSIGN_OR_RETURN(const auto eps, fields.vision.Number("rms_norm_eps", 0, 1));
  spec.norm = NormSpec::Kind::kRms;
  spec.norm_eps = static_cast<float>(eps.value_or(1e-5));
  spec.gate = "mlp.gate_proj";
  spec.up = "mlp.up_proj";
  spec.down = "mlp.down_proj";
  return spec;
}

// `inner`: intermediate size of the merger.
void SetGlmMerger(int64_t inner, TowerSpec& spec) {
  const std::string merger = "visual.merger.";
  spec.projector = {
      {.kind = ProjectorKind::kRmsNorm, .module = "visual.post_layernorm", .eps = spec.norm_eps},
      {.kind = ProjectorKind::kConcatByNumber},
      {.kind = ProjectorKind::kLinear,
       .module = "visual.downsample",
       .width = spec.out_width,
       .shape = {spec.out_width, spec.hidden, spec.merge, spec.merge}},
      {.kind = ProjectorKind::kLinear,
       .module = merger + "proj",
       .width = spec.out_width,
       .has_bias = false},
      {.kind = ProjectorKind::kLayerNorm, .module = merger + "post_projection_norm", .eps = 1e-5F},
      {.kind = ProjectorKind::kActivate},
      {.kind = ProjectorKind::kGated,
       .module = merger + "up_proj",
       .gate = merger + "gate_proj",
       .width = inner,
       .activation = spec.activation,
       .has_bias = false},
      {.kind = ProjectorKind::kLinear,
       .module = merger + "down_proj",
       .width = spec.out_width,
       .has_bias = false}};
}

}  // namespace

// Source: transformers' GlmOcrVisionModel.
Result<TowerSpec> ReadGlmOcrTower(const TowerFields& fields) {
  ASSIGN_OR_RETURN(TowerSpec spec, ReadGlmTower(fields, {.hidden = 1024,
                                                         .intermediate = 4096,
                                                         .layers = 24,
                                                         .heads = 16,
                                                         .patch = 14,
                                                         .layers_field = "depth",
                                                         .heads_field = "num_heads",
                                                         .activation = "silu"}));
  ASSIGN_OR_RETURN(const auto bias, fields.vision.Bool("attention_bias"));
  spec.attention_bias = spec.output_bias = spec.mlp_bias = bias.value_or(true);
  spec.q_norm = "attn.q_norm";
  spec.k_norm = "attn.k_norm";
  SetGlmMerger(spec.out_width * spec.channels, spec);
  return spec;
}

// Source: transformers' Glm4vVisionModel, whose intermediate_size is the merger's.
Result<TowerSpec> ReadGlm4vTower(const TowerFields& fields) {
  ASSIGN_OR_RETURN(TowerSpec spec, ReadGlmTower(fields, {.hidden = 1536,
                                                         .intermediate = 13696,
                                                         .layers = 24,
                                                         .heads = 12,
                                                         .patch = 14,
                                                         .layers_field = "depth",
                                                         .heads_field = "num_heads",
                                                         .activation = "silu"}));
  ASSIGN_OR_RETURN(const auto bias, fields.vision.Bool("attention_bias"));
  ASSIGN_OR_RETURN(const int64_t pixels, ReadSideOr(fields.vision, "image_size", 1 << 16, 336));
  spec.attention_bias = bias.value_or(false);
  spec.output_bias = spec.mlp_bias = false;
  spec.patch_norm = "visual.post_conv_layernorm";
  const int64_t side = pixels / spec.patch;
  spec.positions = TowerSpec::Positions::kBicubic;
  spec.position_tensor = "visual.embeddings.position_embedding.weight";
  spec.position_shape = {side * side, spec.hidden};
  SetGlmMerger(spec.intermediate, spec);
  spec.intermediate = spec.out_width;
  return spec;
}

}  // namespace sluice
