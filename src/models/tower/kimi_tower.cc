// MoonViT, the tower of Kimi K2.5.
#include "models/tower/tower_fields.h"

namespace sluice {

// Source: transformers' Kimi_K25VisionModel and Kimi_K25MultimodalProjection. The names of fields
// and tensors are those of the published files. Field names of transformers are also accepted.
Result<TowerSpec> ReadKimiTower(const TowerFields& fields) {
  const JsonFields& vision = fields.vision;
  const bool is_published = vision.Given("vt_hidden_size") != nullptr;
  const auto name = [&](const char* published, const char* other) {
    return is_published ? published : other;
  };
  ASSIGN_OR_RETURN(
      TowerSpec spec,
      ReadTowerDimensions(
          fields, {.hidden = 1152,
                   .intermediate = 4304,
                   .layers = 27,
                   .heads = 16,
                   .patch = 14,
                   .hidden_field = name("vt_hidden_size", "hidden_size"),
                   .layers_field = name("vt_num_hidden_layers", "num_hidden_layers"),
                   .heads_field = name("vt_num_attention_heads", "num_attention_heads"),
                   .intermediate_field = name("vt_intermediate_size", "intermediate_size")}));
  RETURN_IF_ERROR(ExpectField(vision, "pos_emb_type", json::Value(std::string("divided_fixed"))));
  RETURN_IF_ERROR(ExpectField(vision, "merge_type", json::Value(std::string("sd2_tpool"))));
  RETURN_IF_ERROR(
      ExpectField(vision, "mm_projector_type", json::Value(std::string("patchmerger"))));
  RETURN_IF_ERROR(ExpectField(vision, "projector_hidden_act", json::Value(std::string("gelu"))));
  ASSIGN_OR_RETURN(spec.merge, ReadSideOr(vision, "merge_kernel_size", 16, 2));
  constexpr int64_t kMostSide = 4096;
  const char* const height_field = name("init_pos_emb_height", "pos_emb_height");
  ASSIGN_OR_RETURN(const int64_t side, ReadOr(vision, height_field, kMostSide, 64));
  ASSIGN_OR_RETURN(const int64_t width,
                   ReadOr(vision, name("init_pos_emb_width", "pos_emb_width"), kMostSide, 64));
  if (side != width)
    return vision.Bad(height_field, "a table of positions with as many rows as columns",
                      json::Value(side));
  ASSIGN_OR_RETURN(const auto inner_eps, vision.Number("projector_ln_eps", 0, 1));
  ASSIGN_OR_RETURN(const auto outer_eps, fields.outer.Number("projection_layer_norm_eps", 0, 1));
  ASSIGN_OR_RETURN(const double theta, ReadTowerTheta(vision, 10000));
  const std::string tower = "vision_tower.";
  spec.norm_eps = 1e-5F;
  spec.input = TowerSpec::Input::kRasterPatches;
  // The processor allows up to 16,384 patches, with at most 512 per side. After that, it pads each
  // side by less than three patches.
  spec.padding_patches = 1664 / spec.group() * spec.group();
  SetPatch(spec, tower + "patch_embed.proj", true);
  spec.positions = TowerSpec::Positions::kBicubic;
  spec.position_tensor = tower + "patch_embed.pos_emb.weight";
  spec.position_shape = {side, side, spec.hidden};
  // Pairs of elements of a head are rotated alternately by column and by row, with the same
  // frequency.
  spec.rope_style = kernels::RopeStyle::kInterleaved;
  for (const float frequency :
       kernels::RopeFrequencies(static_cast<int>(spec.head_dim / 2), theta, std::nullopt)) {
    spec.rope_frequencies.insert(spec.rope_frequencies.end(), 2, frequency);
    spec.rope_axes.insert(spec.rope_axes.end(), {1, 0});
  }
  spec.layer_prefix = tower + "encoder.blocks.";
  spec.attention_norm = "norm0";
  spec.mlp_norm = "norm1";
  spec.qkv = "wqkv";
  spec.output = "wo";
  spec.up = "mlp.fc0";
  spec.down = "mlp.fc1";
  spec.projector = {
      {.kind = ProjectorKind::kLayerNorm,
       .module = tower + "encoder.final_layernorm",
       .eps = spec.norm_eps},
      {.kind = ProjectorKind::kLayerNorm,
       .module = "mm_projector.pre_norm",
       .eps = static_cast<float>(inner_eps.value_or(outer_eps.value_or(1e-5)))},
      {.kind = ProjectorKind::kConcatenate},
      {.kind = ProjectorKind::kLinear,
       .module = "mm_projector.proj.0",
       .width = spec.hidden * spec.group()},
      {.kind = ProjectorKind::kActivate},
      {.kind = ProjectorKind::kLinear, .module = "mm_projector.proj.2", .width = spec.out_width}};
  return spec;
}

}  // namespace sluice
