#include "models/tower/tower_fields.h"

#include <utility>

#include <fmt/format.h>

#include "kernels/attention.h"

namespace sluice {
namespace {

constexpr int64_t kMaxPatchPixels = 256;

}  // namespace

Result<int64_t> ReadOr(const JsonFields& fields, const char* name, int64_t most, int64_t absent) {
  ASSIGN_OR_RETURN(const auto given, fields.Integer(name, 1, most));
  return given.value_or(absent);
}

Result<int64_t> ReadSideOr(const JsonFields& fields, const char* name, int64_t most,
                           int64_t absent) {
  const json::Value* value = fields.Given(name);
  if (value == nullptr || !value->is_array()) return ReadOr(fields, name, most, absent);
  ASSIGN_OR_RETURN(const auto sides, fields.Integers(name, 1, most));
  if (sides->size() != 2 || sides->front() != sides->back())
    return fields.Bad(name, "a number, or two that are equal", *value);
  return sides->front();
}

Status ExpectField(const JsonFields& fields, const char* name, const json::Value& only) {
  const json::Value* value = fields.Given(name);
  if (value == nullptr || *value == only) return {};
  return Fail(
      ErrorCode::kUnsupported,
      fmt::format("{} {} is not supported, only {}", name, ShortText(*value), ShortText(only)),
      name);
}

Result<TowerActivation> ReadTowerActivation(const JsonFields& fields, const char* name,
                                            const char* absent) {
  ASSIGN_OR_RETURN(const auto given, fields.String(name));
  const std::string word = given.value_or(absent);
  if (word == "gelu") return TowerActivation::kGelu;
  if (word == "gelu_pytorch_tanh") return TowerActivation::kGeluTanh;
  if (word == "quick_gelu") return TowerActivation::kQuickGelu;
  if (word == "silu") return TowerActivation::kSilu;
  return Fail(ErrorCode::kUnsupported,
              fmt::format("vision_config.{} '{}' is not supported; supported are gelu, "
                          "gelu_pytorch_tanh, quick_gelu and silu",
                          name, ShortName(word)),
              fmt::format("vision_config.{}", name));
}

Result<double> ReadTowerTheta(const JsonFields& fields, double absent) {
  ASSIGN_OR_RETURN(const json::Value* block, fields.Object("rope_parameters"));
  ASSIGN_OR_RETURN(const auto outside, fields.Number("rope_theta", 1, 1e12));
  if (block == nullptr) return outside.value_or(absent);
  ASSIGN_OR_RETURN(
      const auto inside,
      JsonFields(*block, "vision_config.rope_parameters.").Number("rope_theta", 1, 1e12));
  return inside.value_or(outside.value_or(absent));
}

Result<TowerSpec> ReadTowerDimensions(const TowerFields& fields, const TowerDefaults& defaults) {
  TowerSpec spec;
  const JsonFields& vision = fields.vision;
  ASSIGN_OR_RETURN(spec.hidden,
                   ReadOr(vision, defaults.hidden_field, kMaxConfigWidth, defaults.hidden));
  if (defaults.mlp_ratio > 0) {
    spec.intermediate = static_cast<int64_t>(static_cast<double>(spec.hidden) * defaults.mlp_ratio);
  } else {
    ASSIGN_OR_RETURN(spec.intermediate, ReadOr(vision, defaults.intermediate_field, kMaxConfigWidth,
                                               defaults.intermediate));
  }
  ASSIGN_OR_RETURN(spec.num_layers,
                   ReadOr(vision, defaults.layers_field, kMaxConfigLayers, defaults.layers));
  ASSIGN_OR_RETURN(spec.heads, ReadOr(vision, defaults.heads_field, 4096, defaults.heads));
  ASSIGN_OR_RETURN(spec.patch, ReadSideOr(vision, "patch_size", kMaxPatchPixels, defaults.patch));
  for (const char* name : {"num_channels", "in_channels", "in_chans"}) {
    ASSIGN_OR_RETURN(const int64_t channels, ReadOr(vision, name, 64, 3));
    if (channels != 3) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("vision_config.{} {} is not supported, only 3", name, channels),
                  fmt::format("vision_config.{}", name));
    }
  }
  ASSIGN_OR_RETURN(const auto head_dim, vision.Integer("head_dim", 2, kernels::kMaxHeadDim));
  if (!head_dim && spec.hidden % spec.heads != 0)
    return vision.Bad(defaults.heads_field, fmt::format("a divisor of {}", defaults.hidden_field),
                      json::Value(spec.heads));
  spec.head_dim = head_dim.value_or(spec.hidden / spec.heads);
  if (spec.head_dim % 4 != 0 || spec.head_dim > kernels::kMaxHeadDim) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("heads of {} numbers in vision_config are not supported: a multiple of "
                            "4, at most {}",
                            spec.head_dim, kernels::kMaxHeadDim),
                "vision_config.head_dim");
  }
  ASSIGN_OR_RETURN(spec.activation,
                   ReadTowerActivation(vision, defaults.activation_field, defaults.activation));
  spec.out_width = fields.config.hidden_size;
  spec.whole.assign(static_cast<size_t>(spec.num_layers), true);
  return spec;
}

void SetPatch(TowerSpec& spec, std::string module, bool has_bias, bool is_linear) {
  spec.patch_module = std::move(module);
  spec.patch_bias = has_bias;
  if (is_linear)
    spec.patch_shape = {spec.hidden, spec.patch_numbers()};
  else if (spec.temporal > 1)
    spec.patch_shape = {spec.hidden, spec.channels, spec.temporal, spec.patch, spec.patch};
  else
    spec.patch_shape = {spec.hidden, spec.channels, spec.patch, spec.patch};
}

Status SetAxialRope(const TowerFields& fields, double theta, int8_t first, TowerSpec& spec) {
  ASSIGN_OR_RETURN(theta, ReadTowerTheta(fields.vision, theta));
  const int64_t half = spec.head_dim / 2;
  const std::vector<float> one =
      kernels::RopeFrequencies(static_cast<int>(half), theta, std::nullopt);
  spec.rope_frequencies = one;
  spec.rope_frequencies.insert(spec.rope_frequencies.end(), one.begin(), one.end());
  spec.rope_axes.assign(one.size(), first);
  spec.rope_axes.insert(spec.rope_axes.end(), one.size(), static_cast<int8_t>(1 - first));
  return {};
}

void SetSiglipLayers(const std::string& prefix, TowerSpec& spec) {
  spec.layer_prefix = prefix;
  spec.attention_norm = "layer_norm1";
  spec.mlp_norm = "layer_norm2";
  spec.q = "self_attn.q_proj";
  spec.k = "self_attn.k_proj";
  spec.v = "self_attn.v_proj";
  spec.output = "self_attn.out_proj";
  spec.up = "mlp.fc1";
  spec.down = "mlp.fc2";
}

// Source: transformers' PixtralVisionModel.
Result<TowerSpec> ReadPixtralLayers(const TowerFields& fields) {
  ASSIGN_OR_RETURN(TowerSpec spec, ReadTowerDimensions(fields, {.hidden = 1024,
                                                                .intermediate = 4096,
                                                                .layers = 24,
                                                                .heads = 16,
                                                                .patch = 16,
                                                                .activation = "gelu"}));
  spec.norm = NormSpec::Kind::kRms;
  spec.norm_eps = 1e-5F;
  SetPatch(spec, "vision_tower.patch_conv", false);
  // Divides a head's frequencies: rows get the 1st, 3rd, 5th, ...; columns get the others.
  ASSIGN_OR_RETURN(const double theta, ReadTowerTheta(fields.vision, 10000));
  const std::vector<float> all =
      kernels::RopeFrequencies(static_cast<int>(spec.head_dim), theta, std::nullopt);
  for (const size_t axis : {size_t{0}, size_t{1}}) {
    for (size_t i = axis; i < all.size(); i += 2) {
      spec.rope_frequencies.push_back(all[i]);
      spec.rope_axes.push_back(static_cast<int8_t>(axis));
    }
  }
  spec.first_norm = "vision_tower.ln_pre";
  spec.layer_prefix = "vision_tower.transformer.layers.";
  spec.attention_norm = "attention_norm";
  spec.mlp_norm = "ffn_norm";
  spec.q = "attention.q_proj";
  spec.k = "attention.k_proj";
  spec.v = "attention.v_proj";
  spec.output = "attention.o_proj";
  spec.gate = "feed_forward.gate_proj";
  spec.up = "feed_forward.up_proj";
  spec.down = "feed_forward.down_proj";
  spec.attention_bias = spec.output_bias = spec.mlp_bias = false;
  return spec;
}

Result<TowerSpec> ReadQwenTower(const TowerFields& fields, const TowerDefaults& defaults,
                                bool patch_bias) {
  ASSIGN_OR_RETURN(TowerSpec spec, ReadTowerDimensions(fields, defaults));
  ASSIGN_OR_RETURN(spec.temporal, ReadSideOr(fields.vision, "temporal_patch_size", 16, 2));
  ASSIGN_OR_RETURN(spec.merge, ReadOr(fields.vision, "spatial_merge_size", 16, 2));
  ASSIGN_OR_RETURN(const int64_t out,
                   ReadOr(fields.vision, defaults.out_field, kMaxConfigWidth, spec.out_width));
  if (out != spec.out_width) {
    return fields.vision.Bad(defaults.out_field,
                             fmt::format("{}, the width of the text part", spec.out_width),
                             json::Value(out));
  }
  spec.input = TowerSpec::Input::kBlockPatches;
  SetPatch(spec, "visual.patch_embed.proj", patch_bias);
  RETURN_IF_ERROR(SetAxialRope(fields, defaults.theta, /*first=*/0, spec));
  spec.layer_prefix = "visual.blocks.";
  spec.attention_norm = "norm1";
  spec.mlp_norm = "norm2";
  spec.qkv = "attn.qkv";
  spec.output = "attn.proj";
  return spec;
}

}  // namespace sluice
