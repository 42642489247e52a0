#include "models/tower/tower_spec.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "models/tower/tower_fields.h"

namespace sluice {
namespace {

// Source: transformers' SiglipVisionModel and Gemma3MultiModalProjector.
Result<TowerSpec> ReadGemma3Tower(const TowerFields& fields) {
  ASSIGN_OR_RETURN(
      TowerSpec spec,
      ReadTowerDimensions(
          fields, {.hidden = 768, .intermediate = 3072, .layers = 12, .heads = 12, .patch = 16}));
  ASSIGN_OR_RETURN(const int64_t pixels, ReadOr(fields.vision, "image_size", 1 << 16, 224));
  ASSIGN_OR_RETURN(const int64_t tokens, ReadOr(fields.outer, "mm_tokens_per_image", 1 << 20, 256));
  ASSIGN_OR_RETURN(const auto eps, fields.vision.Number("layer_norm_eps", 0, 1));
  spec.norm_eps = static_cast<float>(eps.value_or(1e-6));
  spec.side = pixels / spec.patch;
  const auto token_side = static_cast<int64_t>(std::sqrt(static_cast<double>(tokens)));
  spec.merge = spec.side / token_side;
  if (spec.merge < 1 || spec.merge * token_side != spec.side || token_side * token_side != tokens) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("mm_tokens_per_image {} of {} x {} patches is not supported: its root "
                            "must divide {}",
                            tokens, spec.side, spec.side, spec.side),
                "mm_tokens_per_image");
  }
  SetPatch(spec, "vision_tower.embeddings.patch_embedding", true);
  spec.positions = TowerSpec::Positions::kOrdinal;
  spec.position_tensor = "vision_tower.embeddings.position_embedding.weight";
  spec.position_shape = {spec.side * spec.side, spec.hidden};
  SetSiglipLayers("vision_tower.encoder.layers.", spec);
  spec.projector = {{.kind = ProjectorKind::kLayerNorm,
                     .module = "vision_tower.post_layernorm",
                     .eps = spec.norm_eps},
                    {.kind = ProjectorKind::kMean},
                    {.kind = ProjectorKind::kRmsNorm,
                     .module = "multi_modal_projector.mm_soft_emb_norm",
                     .eps = spec.norm_eps,
                     .offset = 1},
                    {.kind = ProjectorKind::kLinear,
                     .module = "multi_modal_projector.mm_input_projection_weight",
                     .width = spec.out_width,
                     .has_bias = false,
                     .is_transposed = true}};
  spec.sees_both_ways = true;
  return spec;
}

// Source: transformers' Gemma4VisionModel and Gemma4MultimodalEmbedder.
Result<TowerSpec> ReadGemma4Tower(const TowerFields& fields) {
  ASSIGN_OR_RETURN(TowerSpec spec,
                   ReadTowerDimensions(fields, {.hidden = 768,
                                                .intermediate = 3072,
                                                .layers = 16,
                                                .heads = 12,
                                                .patch = 16,
                                                .activation_field = "hidden_activation"}));
  const JsonFields& vision = fields.vision;
  ASSIGN_OR_RETURN(const int64_t kv_heads, ReadOr(vision, "num_key_value_heads", 4096, spec.heads));
  if (kv_heads != spec.heads) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("vision_config.num_key_value_heads {} is not supported, only {}, as "
                            "many as there are heads",
                            kv_heads, spec.heads),
                "vision_config.num_key_value_heads");
  }
  ASSIGN_OR_RETURN(const auto eps, vision.Number("rms_norm_eps", 0, 1));
  ASSIGN_OR_RETURN(spec.merge, ReadOr(vision, "pooling_kernel_size", 64, 3));
  ASSIGN_OR_RETURN(const int64_t positions,
                   ReadOr(vision, "position_embedding_size", 1 << 20, 10240));
  ASSIGN_OR_RETURN(const auto clips, vision.Bool("use_clipped_linears"));
  ASSIGN_OR_RETURN(const auto standardizes, vision.Bool("standardize"));
  spec.norm = NormSpec::Kind::kRms;
  spec.norm_eps = static_cast<float>(eps.value_or(1e-6));
  spec.input = TowerSpec::Input::kRasterPatches;
  spec.shift = 0.5F;
  spec.scale = 2;
  SetPatch(spec, "vision_tower.patch_embedder.input_proj", false, /*is_linear=*/true);
  spec.positions = TowerSpec::Positions::kAxes;
  spec.position_tensor = "vision_tower.patch_embedder.position_embedding_table";
  spec.position_shape = {2, positions, spec.hidden};
  RETURN_IF_ERROR(SetAxialRope(fields, 100, /*first=*/1, spec));
  spec.rotates_halves = true;
  spec.layer_prefix = "vision_tower.encoder.layers.";
  spec.attention_norm = "input_layernorm";
  spec.attention_after = "post_attention_layernorm";
  spec.mlp_norm = "pre_feedforward_layernorm";
  spec.mlp_after = "post_feedforward_layernorm";
  spec.q = "self_attn.q_proj";
  spec.k = "self_attn.k_proj";
  spec.v = "self_attn.v_proj";
  spec.output = "self_attn.o_proj";
  spec.q_norm = "self_attn.q_norm";
  spec.k_norm = "self_attn.k_norm";
  spec.norms_values = true;
  spec.attention_bias = spec.output_bias = spec.mlp_bias = false;
  spec.attention_scale = 1.0F;
  spec.gate = "mlp.gate_proj";
  spec.up = "mlp.up_proj";
  spec.down = "mlp.down_proj";
  spec.inner_module = ".linear";
  spec.clips = clips.value_or(false);
  spec.projector = {
      {.kind = ProjectorKind::kMean},
      {.kind = ProjectorKind::kScale, .factor = std::sqrt(static_cast<float>(spec.hidden))}};
  if (standardizes.value_or(false))
    spec.projector.push_back({.kind = ProjectorKind::kStandardize, .module = "vision_tower.std"});
  spec.projector.push_back({.kind = ProjectorKind::kPlainRmsNorm, .eps = spec.norm_eps});
  spec.projector.push_back({.kind = ProjectorKind::kLinear,
                            .module = "embed_vision.embedding_projection",
                            .width = spec.out_width,
                            .has_bias = false});
  ASSIGN_OR_RETURN(const json::Value* text, fields.outer.Object("text_config"));
  if (text != nullptr) {
    ASSIGN_OR_RETURN(const auto both_ways,
                     JsonFields(*text, "text_config.").String("use_bidirectional_attention"));
    spec.sees_both_ways = both_ways == "vision";
  }
  return spec;
}

// Source: transformers' Qwen2VisionTransformerPretrainedModel, whose hidden_size is the decoder's.
Result<TowerSpec> ReadQwen2Tower(const TowerFields& fields) {
  ASSIGN_OR_RETURN(const auto ratio, fields.vision.Number("mlp_ratio", 0.01, 64));
  ASSIGN_OR_RETURN(TowerSpec spec, ReadQwenTower(fields,
                                                 {.hidden = 1280,
                                                  .layers = 32,
                                                  .heads = 16,
                                                  .patch = 14,
                                                  .hidden_field = "embed_dim",
                                                  .layers_field = "depth",
                                                  .heads_field = "num_heads",
                                                  .out_field = "hidden_size",
                                                  .activation = "quick_gelu",
                                                  .mlp_ratio = ratio.value_or(4)},
                                                 false));
  const int64_t merged = spec.hidden * spec.group();
  spec.up = "mlp.fc1";
  spec.down = "mlp.fc2";
  spec.projector = {
      {.kind = ProjectorKind::kLayerNorm, .module = "visual.merger.ln_q", .eps = 1e-6F},
      {.kind = ProjectorKind::kConcatenate},
      {.kind = ProjectorKind::kLinear, .module = "visual.merger.mlp.0", .width = merged},
      {.kind = ProjectorKind::kActivate},
      {.kind = ProjectorKind::kLinear, .module = "visual.merger.mlp.2", .width = spec.out_width}};
  return spec;
}

// Source: transformers' Qwen2_5_VisionTransformerPretrainedModel.
Result<TowerSpec> ReadQwen25Tower(const TowerFields& fields) {
  ASSIGN_OR_RETURN(TowerSpec spec, ReadQwenTower(fields,
                                                 {.hidden = 3584,
                                                  .intermediate = 3420,
                                                  .layers = 32,
                                                  .heads = 16,
                                                  .patch = 14,
                                                  .layers_field = "depth",
                                                  .heads_field = "num_heads",
                                                  .activation = "silu"},
                                                 false));
  const int64_t merged = spec.hidden * spec.group();
  spec.norm = NormSpec::Kind::kRms;
  spec.gate = "mlp.gate_proj";
  spec.up = "mlp.up_proj";
  spec.down = "mlp.down_proj";
  ASSIGN_OR_RETURN(const int64_t window, ReadOr(fields.vision, "window_size", 1 << 16, 112));
  spec.window = window / spec.merge / spec.patch * spec.merge;
  if (spec.window == 0) {
    return fields.vision.Bad("window_size", "at least the size of a merged patch, in pixels",
                             json::Value(window));
  }
  ASSIGN_OR_RETURN(const auto given,
                   fields.vision.Integers("fullatt_block_indexes", 0, kMaxConfigLayers));
  spec.whole.assign(static_cast<size_t>(spec.num_layers), false);
  for (const int64_t layer : given.value_or(std::vector<int64_t>{7, 15, 23, 31})) {
    if (layer < spec.num_layers) spec.whole[static_cast<size_t>(layer)] = true;
  }
  spec.projector = {
      {.kind = ProjectorKind::kRmsNorm, .module = "visual.merger.ln_q", .eps = 1e-6F},
      {.kind = ProjectorKind::kConcatenate},
      {.kind = ProjectorKind::kLinear, .module = "visual.merger.mlp.0", .width = merged},
      {.kind = ProjectorKind::kActivate},
      {.kind = ProjectorKind::kLinear, .module = "visual.merger.mlp.2", .width = spec.out_width}};
  return spec;
}

// Returns the steps of Qwen3VLVisionPatchMerger. `norms_merged`: whether the norm is applied to
// merged rows.
std::vector<ProjectorStep> QwenMerger(const std::string& module, const TowerSpec& spec,
                                      bool norms_merged) {
  const ProjectorStep norm = {
      .kind = ProjectorKind::kLayerNorm, .module = module + ".norm", .eps = 1e-6F};
  const ProjectorStep merge = {.kind = ProjectorKind::kConcatenate};
  return {
      norms_merged ? merge : norm,
      norms_merged ? norm : merge,
      {.kind = ProjectorKind::kLinear,
       .module = module + ".linear_fc1",
       .width = spec.hidden * spec.group()},
      {.kind = ProjectorKind::kActivate},
      {.kind = ProjectorKind::kLinear, .module = module + ".linear_fc2", .width = spec.out_width}};
}

// Source: transformers' Qwen3VLVisionModel and Qwen3_5VisionModel, which has no levels.
Result<TowerSpec> ReadQwen3Tower(const TowerFields& fields, bool has_levels) {
  ASSIGN_OR_RETURN(TowerSpec spec, ReadQwenTower(fields,
                                                 {.hidden = 1152,
                                                  .intermediate = 4304,
                                                  .layers = 27,
                                                  .heads = 16,
                                                  .patch = 16,
                                                  .layers_field = "depth",
                                                  .heads_field = "num_heads"},
                                                 true));
  ASSIGN_OR_RETURN(const int64_t positions,
                   ReadOr(fields.vision, "num_position_embeddings", 1 << 24, 2304));
  const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(positions)));
  if (side * side != positions)
    return fields.vision.Bad("num_position_embeddings", "a square", json::Value(positions));
  spec.positions = TowerSpec::Positions::kInterpolated;
  spec.position_tensor = "visual.pos_embed.weight";
  spec.position_shape = {positions, spec.hidden};
  spec.up = "mlp.linear_fc1";
  spec.down = "mlp.linear_fc2";
  spec.projector = QwenMerger("visual.merger", spec, /*norms_merged=*/false);
  if (!has_levels) return spec;
  ASSIGN_OR_RETURN(const auto given,
                   fields.vision.Integers("deepstack_visual_indexes", 0, kMaxConfigLayers));
  const std::vector<int64_t> layers = given.value_or(std::vector<int64_t>{8, 16, 24});
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool ascends = i == 0 || layers[i] > layers[i - 1];
    if (!ascends || layers[i] >= spec.num_layers ||
        std::ssize(layers) >= fields.config.num_hidden_layers) {
      return fields.vision.Bad("deepstack_visual_indexes",
                               "layers of the tower, ascending, fewer than the text part has",
                               *fields.vision.Given("deepstack_visual_indexes"));
    }
    spec.levels.push_back(
        {layers[i], QwenMerger(fmt::format("visual.deepstack_merger_list.{}", i), spec, true)});
  }
  return spec;
}
Result<TowerSpec> ReadQwen3VlTower(const TowerFields& fields) {
  return ReadQwen3Tower(fields, /*has_levels=*/true);
}
Result<TowerSpec> ReadQwen35Tower(const TowerFields& fields) {
  return ReadQwen3Tower(fields, /*has_levels=*/false);
}

// Source: transformers' Mistral3MultiModalProjector.
Result<TowerSpec> ReadMistral3Tower(const TowerFields& fields) {
  ASSIGN_OR_RETURN(TowerSpec spec, ReadPixtralLayers(fields));
  RETURN_IF_ERROR(ExpectField(fields.outer, "vision_feature_layer", json::Value(int64_t{-1})));
  ASSIGN_OR_RETURN(spec.merge, ReadOr(fields.outer, "spatial_merge_size", 16, 2));
  ASSIGN_OR_RETURN(const auto bias, fields.outer.Bool("multimodal_projector_bias"));
  ASSIGN_OR_RETURN(const TowerActivation activation,
                   ReadTowerActivation(fields.outer, "projector_hidden_act", "gelu"));
  const bool has_bias = bias.value_or(false);
  spec.projector = {{.kind = ProjectorKind::kRmsNorm,
                     .module = "multi_modal_projector.norm",
                     .eps = static_cast<float>(fields.config.rms_norm_eps)},
                    {.kind = ProjectorKind::kConcatByNumber},
                    {.kind = ProjectorKind::kLinear,
                     .module = "multi_modal_projector.patch_merger.merging_layer",
                     .width = spec.hidden,
                     .has_bias = false},
                    {.kind = ProjectorKind::kLinear,
                     .module = "multi_modal_projector.linear_1",
                     .width = spec.out_width,
                     .has_bias = has_bias},
                    {.kind = ProjectorKind::kActivate, .activation = activation},
                    {.kind = ProjectorKind::kLinear,
                     .module = "multi_modal_projector.linear_2",
                     .width = spec.out_width,
                     .has_bias = has_bias}};
  return spec;
}

// Source: transformers' PaddleOCRVisionModel and PaddleOCRProjector.
Result<TowerSpec> ReadPaddleTower(const TowerFields& fields) {
  ASSIGN_OR_RETURN(
      TowerSpec spec,
      ReadTowerDimensions(
          fields, {.hidden = 1152, .intermediate = 4304, .layers = 27, .heads = 16, .patch = 14}));
  ASSIGN_OR_RETURN(const int64_t pixels, ReadOr(fields.vision, "image_size", 1 << 16, 384));
  ASSIGN_OR_RETURN(spec.merge, ReadOr(fields.vision, "spatial_merge_size", 16, 2));
  ASSIGN_OR_RETURN(const auto eps, fields.vision.Number("layer_norm_eps", 0, 1));
  spec.norm_eps = static_cast<float>(eps.value_or(1e-6));
  spec.input = TowerSpec::Input::kRasterPatches;
  const std::string vision = "visual.vision_model.";
  SetPatch(spec, vision + "embeddings.patch_embedding", true);
  const int64_t side = pixels / spec.patch;
  spec.positions = TowerSpec::Positions::kInterpolatedCentres;
  spec.position_tensor = vision + "embeddings.position_embedding.weight";
  spec.position_shape = {side * side, spec.hidden};
  RETURN_IF_ERROR(SetAxialRope(fields, 10000, /*first=*/0, spec));
  SetSiglipLayers(vision + "encoder.layers.", spec);
  const int64_t merged = spec.hidden * spec.group();
  spec.projector = {
      {.kind = ProjectorKind::kLayerNorm,
       .module = vision + "post_layernorm",
       .eps = spec.norm_eps},
      {.kind = ProjectorKind::kLayerNorm, .module = "mlp_AR.pre_norm", .eps = 1e-5F},
      {.kind = ProjectorKind::kConcatenate},
      {.kind = ProjectorKind::kLinear, .module = "mlp_AR.linear_1", .width = merged},
      {.kind = ProjectorKind::kActivate},
      {.kind = ProjectorKind::kLinear, .module = "mlp_AR.linear_2", .width = spec.out_width}};
  return spec;
}

// Source: transformers' Llama4VisionModel and Llama4MultiModalProjector.
Result<TowerSpec> ReadLlama4Tower(const TowerFields& fields) {
  ASSIGN_OR_RETURN(TowerSpec spec, ReadTowerDimensions(fields, {.hidden = 768,
                                                                .intermediate = 5632,
                                                                .layers = 34,
                                                                .heads = 16,
                                                                .patch = 14,
                                                                .activation = "gelu"}));
  const JsonFields& vision = fields.vision;
  ASSIGN_OR_RETURN(const int64_t pixels, ReadOr(vision, "image_size", 1 << 16, 448));
  ASSIGN_OR_RETURN(const auto ratio, vision.Number("pixel_shuffle_ratio", 0.01, 1));
  ASSIGN_OR_RETURN(const int64_t in, ReadOr(vision, "projector_input_dim", kMaxConfigWidth, 4096));
  ASSIGN_OR_RETURN(const int64_t out,
                   ReadOr(vision, "projector_output_dim", kMaxConfigWidth, 4096));
  spec.side = pixels / spec.patch;
  spec.merge = std::lround(1 / ratio.value_or(0.5));
  if (spec.side % spec.merge != 0) {
    return vision.Bad("pixel_shuffle_ratio", fmt::format("one over a divisor of {}", spec.side),
                      json::Value(ratio.value_or(0.5)));
  }
  // The activation is fixed, regardless of hidden_act.
  spec.activation = TowerActivation::kGelu;
  spec.norm_eps = 1e-5F;
  SetPatch(spec, "vision_model.patch_embedding.linear", false, /*is_linear=*/true);
  spec.has_class = true;
  spec.class_tensor = "vision_model.class_embedding";
  spec.positions = TowerSpec::Positions::kOrdinal;
  spec.position_tensor = "vision_model.positional_embedding_vlm";
  spec.position_shape = {spec.side * spec.side + 1, spec.hidden};
  RETURN_IF_ERROR(SetAxialRope(fields, 10000, /*first=*/1, spec));
  spec.rope_style = kernels::RopeStyle::kInterleaved;
  spec.rope_first = 1;
  spec.first_norm = "vision_model.layernorm_pre";
  spec.layer_prefix = "vision_model.model.layers.";
  spec.attention_norm = "input_layernorm";
  spec.mlp_norm = "post_attention_layernorm";
  spec.q = "self_attn.q_proj";
  spec.k = "self_attn.k_proj";
  spec.v = "self_attn.v_proj";
  spec.output = "self_attn.o_proj";
  spec.up = "mlp.fc1";
  spec.down = "mlp.fc2";
  const std::string adapter = "vision_model.vision_adapter.mlp.";
  spec.projector = {
      {.kind = ProjectorKind::kLayerNorm,
       .module = "vision_model.layernorm_post",
       .eps = spec.norm_eps},
      {.kind = ProjectorKind::kConcatenate},
      {.kind = ProjectorKind::kLinear, .module = adapter + "fc1", .width = in, .has_bias = false},
      {.kind = ProjectorKind::kActivate},
      {.kind = ProjectorKind::kLinear, .module = adapter + "fc2", .width = out, .has_bias = false},
      {.kind = ProjectorKind::kActivate},
      {.kind = ProjectorKind::kLinear,
       .module = "multi_modal_projector.linear_1",
       .width = spec.out_width,
       .has_bias = false}};
  return spec;
}

struct TowerReader {
  const char* architecture;
  Result<TowerSpec> (*read)(const TowerFields& fields);
};
constexpr TowerReader kTowerReaders[] = {
    {"AyaVisionForConditionalGeneration", ReadAyaTower},
    {"Gemma3ForConditionalGeneration", ReadGemma3Tower},
    {"Gemma4ForConditionalGeneration", ReadGemma4Tower},
    {"Glm4vForConditionalGeneration", ReadGlm4vTower},
    {"Glm4vMoeForConditionalGeneration", ReadGlm4vTower},
    {"GlmOcrForConditionalGeneration", ReadGlmOcrTower},
    {"Idefics3ForConditionalGeneration", ReadIdefics3Tower},
    {"InternVLForConditionalGeneration", ReadInternVlTower},
    {"Lfm2VlForConditionalGeneration", ReadLfm2VlTower},
    {"KimiK25ForConditionalGeneration", ReadKimiTower},
    {"Kimi_K25ForConditionalGeneration", ReadKimiTower},
    {"Llama4ForConditionalGeneration", ReadLlama4Tower},
    {"LlavaForConditionalGeneration", ReadLlavaTower},
    {"LlavaNextForConditionalGeneration", ReadLlavaNextTower},
    {"Mistral3ForConditionalGeneration", ReadMistral3Tower},
    {"PaddleOCRVLForConditionalGeneration", ReadPaddleTower},
    {"Qwen2VLForConditionalGeneration", ReadQwen2Tower},
    {"Qwen2_5_VLForConditionalGeneration", ReadQwen25Tower},
    {"Qwen3VLForConditionalGeneration", ReadQwen3VlTower},
    {"Qwen3VLMoeForConditionalGeneration", ReadQwen3VlTower},
    {"Qwen3_5ForConditionalGeneration", ReadQwen35Tower},
    {"Qwen3_5MoeForConditionalGeneration", ReadQwen35Tower},
    {"SmolVLMForConditionalGeneration", ReadIdefics3Tower},
};

}  // namespace

Result<std::optional<TowerSpec>> ReadTowerSpec(const ModelConfig& config) {
  for (const TowerReader& reader : kTowerReaders) {
    if (config.architecture != reader.architecture) continue;
    const JsonFields outer(config.raw, "");
    ASSIGN_OR_RETURN(const json::Value* vision, outer.Object("vision_config"));
    if (vision == nullptr) return std::nullopt;
    const JsonFields fields(*vision, "vision_config.");
    ASSIGN_OR_RETURN(TowerSpec spec,
                     reader.read({.vision = fields, .outer = outer, .config = config}));
    return std::optional(std::move(spec));
  }
  return std::nullopt;
}

}  // namespace sluice
