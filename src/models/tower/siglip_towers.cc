// Towers with CLIP's and SigLIP's layers, and projectors of one or two matrices.
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "models/tower/tower_fields.h"

namespace sluice {
namespace {

constexpr int64_t kMostPixels = 1 << 16;

// Reads the layers whose results are concatenated, and reduces spec.num_layers to the last of them.
// Negative numbers count from the last layer; 0 is the input of the first layer.
Status ReadFeatureLayers(const TowerFields& fields, int64_t absent, TowerSpec& spec) {
  constexpr const char* kField = "vision_feature_layer";
  const json::Value* value = fields.outer.Given(kField);
  std::vector<int64_t> layers = {absent};
  if (value != nullptr && value->is_array()) {
    ASSIGN_OR_RETURN(const auto given,
                     fields.outer.Integers(kField, -kMaxConfigLayers, kMaxConfigLayers));
    layers = *given;
  } else if (value != nullptr) {
    if (!value->is_integer()) return fields.outer.Bad(kField, "a layer's number", *value);
    layers = {value->as_integer()};
  }
  int64_t last = 0;
  for (int64_t& layer : layers) {
    const int64_t taken = layer < 0 ? spec.num_layers + 1 + layer : layer;
    if (taken <= last || taken > spec.num_layers) {
      return fields.outer.Bad(
          kField,
          fmt::format("layers of {}, ascending, without the first one's input", spec.num_layers),
          value == nullptr ? json::Value(absent) : *value);
    }
    last = taken;
    layer = taken - 1;
  }
  if (layers.empty()) return fields.outer.Bad(kField, "at least one layer", *value);
  if (layers.size() > 1) spec.features = std::move(layers);
  spec.num_layers = last;
  spec.whole.resize(static_cast<size_t>(last));
  return {};
}

// Returns whether all rows are used ("full"), or all except the first one ("default").
Result<bool> TakesAllRows(const TowerFields& fields) {
  constexpr const char* kField = "vision_feature_select_strategy";
  ASSIGN_OR_RETURN(const auto given, fields.outer.String(kField));
  if (!given || *given == "default") return false;
  if (*given == "full") return true;
  return Fail(ErrorCode::kUnsupported,
              fmt::format("{} '{}' is not supported; supported are default and full", kField,
                          ShortName(*given)),
              kField);
}

Status ReadLayerNormEps(const TowerFields& fields, double absent, TowerSpec& spec) {
  ASSIGN_OR_RETURN(const auto eps, fields.vision.Number("layer_norm_eps", 0, 1));
  spec.norm_eps = static_cast<float>(eps.value_or(absent));
  return {};
}

// Source: transformers' CLIPVisionModel.
Result<TowerSpec> ReadClipLayers(const TowerFields& fields) {
  ASSIGN_OR_RETURN(TowerSpec spec, ReadTowerDimensions(fields, {.hidden = 768,
                                                                .intermediate = 3072,
                                                                .layers = 12,
                                                                .heads = 12,
                                                                .patch = 32,
                                                                .activation = "quick_gelu"}));
  ASSIGN_OR_RETURN(const int64_t pixels, ReadSideOr(fields.vision, "image_size", kMostPixels, 224));
  RETURN_IF_ERROR(ReadLayerNormEps(fields, 1e-5, spec));
  spec.side = pixels / spec.patch;
  SetPatch(spec, "vision_tower.embeddings.patch_embedding", false);
  spec.has_class = true;
  spec.class_tensor = "vision_tower.embeddings.class_embedding";
  spec.positions = TowerSpec::Positions::kClassFirst;
  spec.position_tensor = "vision_tower.embeddings.position_embedding.weight";
  spec.position_shape = {spec.side * spec.side + 1, spec.hidden};
  spec.first_norm = "vision_tower.pre_layrnorm";
  SetSiglipLayers("vision_tower.encoder.layers.", spec);
  return spec;
}

// Source: transformers' SiglipVisionModel.
Result<TowerSpec> ReadSiglipLayers(const TowerFields& fields) {
  ASSIGN_OR_RETURN(
      TowerSpec spec,
      ReadTowerDimensions(
          fields, {.hidden = 768, .intermediate = 3072, .layers = 12, .heads = 12, .patch = 16}));
  ASSIGN_OR_RETURN(const int64_t pixels, ReadSideOr(fields.vision, "image_size", kMostPixels, 224));
  RETURN_IF_ERROR(ReadLayerNormEps(fields, 1e-6, spec));
  spec.side = pixels / spec.patch;
  SetPatch(spec, "vision_tower.embeddings.patch_embedding", true);
  spec.positions = TowerSpec::Positions::kOrdinal;
  spec.position_tensor = "vision_tower.embeddings.position_embedding.weight";
  spec.position_shape = {spec.side * spec.side, spec.hidden};
  SetSiglipLayers("vision_tower.encoder.layers.", spec);
  return spec;
}

// Adds the two matrices of multi_modal_projector.
Status AddTwoMatrices(const TowerFields& fields, int64_t inner, bool has_bias, TowerSpec& spec) {
  ASSIGN_OR_RETURN(const TowerActivation activation,
                   ReadTowerActivation(fields.outer, "projector_hidden_act", "gelu"));
  spec.projector.push_back({.kind = ProjectorKind::kLinear,
                            .module = "multi_modal_projector.linear_1",
                            .width = inner,
                            .has_bias = has_bias});
  spec.projector.push_back({.kind = ProjectorKind::kActivate, .activation = activation});
  spec.projector.push_back({.kind = ProjectorKind::kLinear,
                            .module = "multi_modal_projector.linear_2",
                            .width = spec.out_width,
                            .has_bias = has_bias});
  return {};
}

}  // namespace

// Source: transformers' LlavaModel, which has one of three towers.
Result<TowerSpec> ReadLlavaTower(const TowerFields& fields) {
  ASSIGN_OR_RETURN(const auto type, fields.vision.String("model_type"));
  const std::string name = type.value_or("clip_vision_model");
  ASSIGN_OR_RETURN(const bool all_rows, TakesAllRows(fields));
  const bool is_clip = name == "clip_vision_model";
  if (!is_clip && name != "siglip_vision_model" && name != "pixtral") {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("vision_config.model_type '{}' is not supported; supported are "
                            "clip_vision_model, siglip_vision_model and pixtral",
                            ShortName(name)),
                "vision_config.model_type");
  }
  if (is_clip == all_rows) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("vision_feature_select_strategy '{}' is not supported with {}, which "
                            "has {} class row",
                            all_rows ? "full" : "default", name, is_clip ? "a" : "no"),
                "vision_feature_select_strategy");
  }
  ASSIGN_OR_RETURN(TowerSpec spec, is_clip             ? ReadClipLayers(fields)
                                   : name == "pixtral" ? ReadPixtralLayers(fields)
                                                       : ReadSiglipLayers(fields));
  RETURN_IF_ERROR(ReadFeatureLayers(fields, -2, spec));
  ASSIGN_OR_RETURN(const auto bias, fields.outer.Bool("multimodal_projector_bias"));
  // Each output row is one patch; the class row after the patches is dropped.
  spec.projector = {{.kind = ProjectorKind::kConcatenate}};
  RETURN_IF_ERROR(AddTwoMatrices(fields, spec.out_width, bias.value_or(true), spec));
  // Granite scales the decoder's input, including the rows of images.
  if (fields.config.spec.embedding_scale != 1) {
    spec.projector.push_back(
        {.kind = ProjectorKind::kScale, .factor = fields.config.spec.embedding_scale});
  }
  return spec;
}

// Source: transformers' LlavaNextModel.
Result<TowerSpec> ReadLlavaNextTower(const TowerFields& fields) {
  ASSIGN_OR_RETURN(TowerSpec spec, ReadLlavaTower(fields));
  if (spec.side == 0) {
    return Fail(ErrorCode::kUnsupported,
                "vision_config.model_type 'pixtral' is not supported with LLaVA-NeXT, whose tiles "
                "are squares",
                "vision_config.model_type");
  }
  spec.newline_tensor = "image_newline";
  spec.newline_factor = fields.config.spec.embedding_scale;
  return spec;
}

// Source: transformers' InternVLVisionModel and InternVLMultiModalProjector.
Result<TowerSpec> ReadInternVlTower(const TowerFields& fields) {
  const JsonFields& vision = fields.vision;
  ASSIGN_OR_RETURN(TowerSpec spec, ReadTowerDimensions(fields, {.hidden = 1024,
                                                                .intermediate = 4096,
                                                                .layers = 24,
                                                                .heads = 16,
                                                                .patch = 14,
                                                                .activation = "gelu"}));
  RETURN_IF_ERROR(ExpectField(vision, "use_qk_norm", json::Value(false)));
  RETURN_IF_ERROR(ExpectField(vision, "use_absolute_position_embeddings", json::Value(true)));
  RETURN_IF_ERROR(ExpectField(vision, "use_mean_pooling", json::Value(true)));
  RETURN_IF_ERROR(
      ExpectField(fields.outer, "vision_feature_select_strategy", json::Value("default")));
  ASSIGN_OR_RETURN(const auto norm, vision.String("norm_type"));
  ASSIGN_OR_RETURN(const auto bias, vision.Bool("attention_bias"));
  ASSIGN_OR_RETURN(const int64_t pixels, ReadSideOr(vision, "image_size", kMostPixels, 448));
  ASSIGN_OR_RETURN(const auto ratio, fields.outer.Number("downsample_ratio", 0.01, 1));
  RETURN_IF_ERROR(ReadLayerNormEps(fields, 1e-6, spec));
  if (norm.value_or("layer_norm") != "layer_norm" && *norm != "rms_norm")
    return vision.Bad("norm_type", "layer_norm or rms_norm", json::Value(*norm));
  spec.norm = norm == "rms_norm" ? NormSpec::Kind::kRms : NormSpec::Kind::kLayer;
  spec.side = pixels / spec.patch;
  spec.merge = static_cast<int64_t>(1 / ratio.value_or(0.5));
  if (spec.side % spec.merge != 0) {
    return fields.outer.Bad("downsample_ratio", fmt::format("one over a divisor of {}", spec.side),
                            json::Value(ratio.value_or(0.5)));
  }
  const std::string tower = "vision_tower.embeddings.";
  SetPatch(spec, tower + "patch_embeddings.projection", true);
  spec.has_class = true;
  spec.class_tensor = tower + "cls_token";
  spec.positions = TowerSpec::Positions::kClassFirst;
  spec.position_tensor = tower + "position_embeddings";
  spec.position_shape = {1, spec.side * spec.side + 1, spec.hidden};
  spec.layer_prefix = "vision_tower.encoder.layer.";
  spec.attention_norm = "layernorm_before";
  spec.mlp_norm = "layernorm_after";
  spec.q = "attention.q_proj";
  spec.k = "attention.k_proj";
  spec.v = "attention.v_proj";
  spec.output = "attention.projection_layer";
  spec.attention_bias = bias.value_or(false);
  spec.attention_factor = "lambda_1";
  spec.mlp_factor = "lambda_2";
  spec.up = "mlp.fc1";
  spec.down = "mlp.fc2";
  RETURN_IF_ERROR(ReadFeatureLayers(fields, -1, spec));
  if (!spec.features.empty()) {
    return Fail(ErrorCode::kUnsupported,
                "vision_feature_layer of InternVL is not supported with more than one layer",
                "vision_feature_layer");
  }
  spec.projector = {{.kind = ProjectorKind::kConcatenate},
                    {.kind = ProjectorKind::kLayerNorm,
                     .module = "multi_modal_projector.layer_norm",
                     .eps = 1e-5F}};
  RETURN_IF_ERROR(AddTwoMatrices(fields, spec.out_width, true, spec));
  return spec;
}

// Source: transformers' AyaVisionModel and AyaVisionMultiModalProjector, with SiglipVisionModel.
Result<TowerSpec> ReadAyaTower(const TowerFields& fields) {
  RETURN_IF_ERROR(
      ExpectField(fields.vision, "model_type", json::Value(std::string("siglip_vision_model"))));
  RETURN_IF_ERROR(ExpectField(fields.outer, "vision_feature_select_strategy",
                              json::Value(std::string("full"))));
  ASSIGN_OR_RETURN(TowerSpec spec, ReadSiglipLayers(fields));
  RETURN_IF_ERROR(ReadFeatureLayers(fields, -1, spec));
  if (!spec.features.empty()) {
    return Fail(ErrorCode::kUnsupported,
                "vision_feature_layer of Aya Vision is not supported with more than one layer",
                "vision_feature_layer");
  }
  ASSIGN_OR_RETURN(spec.merge, ReadOr(fields.outer, "downsample_factor", 16, 2));
  if (spec.side % spec.merge != 0) {
    return fields.outer.Bad("downsample_factor", fmt::format("a divisor of {}", spec.side),
                            json::Value(spec.merge));
  }
  ASSIGN_OR_RETURN(const auto eps, fields.outer.Number("adapter_layer_norm_eps", 0, 1));
  ASSIGN_OR_RETURN(const int64_t inner, ReadOr(fields.outer, "alignment_intermediate_size",
                                               2 * kMaxConfigWidth, spec.out_width));
  if (inner % 2 != 0) {
    return fields.outer.Bad("alignment_intermediate_size", "an even number", json::Value(inner));
  }
  spec.projector = {{.kind = ProjectorKind::kConcatenate},
                    {.kind = ProjectorKind::kLayerNorm,
                     .module = "multi_modal_projector.layernorm",
                     .eps = static_cast<float>(eps.value_or(1e-6))},
                    {.kind = ProjectorKind::kGated,
                     .module = "multi_modal_projector.linear_1",
                     .width = inner / 2,
                     .activation = TowerActivation::kSilu,
                     .holds_gate = true},
                    {.kind = ProjectorKind::kLinear,
                     .module = "multi_modal_projector.linear_2",
                     .width = spec.out_width}};
  return spec;
}

// Source: transformers' Idefics3VisionTransformer and Idefics3Connector; SmolVLM has the same
// modules.
Result<TowerSpec> ReadIdefics3Tower(const TowerFields& fields) {
  ASSIGN_OR_RETURN(
      TowerSpec spec,
      ReadTowerDimensions(
          fields, {.hidden = 1152, .intermediate = 3072, .layers = 12, .heads = 16, .patch = 32}));
  ASSIGN_OR_RETURN(const int64_t pixels, ReadSideOr(fields.vision, "image_size", kMostPixels, 224));
  ASSIGN_OR_RETURN(spec.merge, ReadOr(fields.outer, "scale_factor", 16, 2));
  RETURN_IF_ERROR(ReadLayerNormEps(fields, 1e-6, spec));
  spec.side = pixels / spec.patch;
  if (spec.side % spec.merge != 0) {
    return fields.outer.Bad("scale_factor", fmt::format("a divisor of {}", spec.side),
                            json::Value(spec.merge));
  }
  SetPatch(spec, "vision_model.embeddings.patch_embedding", true);
  spec.positions = TowerSpec::Positions::kBuckets;
  spec.position_tensor = "vision_model.embeddings.position_embedding.weight";
  spec.position_shape = {spec.side * spec.side, spec.hidden};
  SetSiglipLayers("vision_model.encoder.layers.", spec);
  spec.projector = {{.kind = ProjectorKind::kLayerNorm,
                     .module = "vision_model.post_layernorm",
                     .eps = spec.norm_eps},
                    {.kind = ProjectorKind::kConcatenate},
                    {.kind = ProjectorKind::kLinear,
                     .module = "connector.modality_projection.proj",
                     .width = spec.out_width,
                     .has_bias = false}};
  return spec;
}

// Source: transformers' Siglip2VisionModel and Lfm2VlMultiModalProjector.
Result<TowerSpec> ReadLfm2VlTower(const TowerFields& fields) {
  ASSIGN_OR_RETURN(
      TowerSpec spec,
      ReadTowerDimensions(
          fields, {.hidden = 768, .intermediate = 3072, .layers = 12, .heads = 12, .patch = 16}));
  RETURN_IF_ERROR(ExpectField(fields.outer, "vision_feature_layer", json::Value(int64_t{-1})));
  ASSIGN_OR_RETURN(const int64_t positions, ReadOr(fields.vision, "num_patches", 1 << 24, 256));
  ASSIGN_OR_RETURN(spec.merge, ReadOr(fields.outer, "downsample_factor", 16, 2));
  ASSIGN_OR_RETURN(const int64_t inner,
                   ReadOr(fields.outer, "projector_hidden_size", kMaxConfigWidth, 2560));
  ASSIGN_OR_RETURN(const auto bias, fields.outer.Bool("projector_bias"));
  ASSIGN_OR_RETURN(const auto norms, fields.outer.Bool("projector_use_layernorm"));
  RETURN_IF_ERROR(ReadLayerNormEps(fields, 1e-6, spec));
  const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(positions)));
  if (side * side != positions)
    return fields.vision.Bad("num_patches", "a square", json::Value(positions));
  spec.input = TowerSpec::Input::kRasterPatches;
  SetPatch(spec, "vision_tower.embeddings.patch_embedding", true, /*is_linear=*/true);
  spec.positions = TowerSpec::Positions::kAntialiased;
  spec.position_tensor = "vision_tower.embeddings.position_embedding.weight";
  spec.position_shape = {positions, spec.hidden};
  SetSiglipLayers("vision_tower.encoder.layers.", spec);
  spec.projector = {{.kind = ProjectorKind::kLayerNorm,
                     .module = "vision_tower.post_layernorm",
                     .eps = spec.norm_eps},
                    {.kind = ProjectorKind::kConcatenate}};
  if (norms.value_or(true)) {
    spec.projector.push_back({.kind = ProjectorKind::kLayerNorm,
                              .module = "multi_modal_projector.layer_norm",
                              .eps = 1e-5F});
  }
  RETURN_IF_ERROR(AddTwoMatrices(fields, inner, bias.value_or(true), spec));
  return spec;
}

}  // namespace sluice
