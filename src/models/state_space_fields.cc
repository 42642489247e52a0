#include "models/state_space_fields.h"

#include <cmath>

#include <fmt/format.h>

#include "models/family_fields.h"

namespace sluice {
namespace {

constexpr int64_t kMostHeads = 4096, kWidest = 65536;

// transformers writes infinity in these forms, because JSON has no infinity.
bool IsInfinite(const json::Value& value) {
  if (value.is_string()) return value.as_string() == "Infinity" || value.as_string() == "inf";
  const json::Value* const text = value.is_object() ? value.Find("__float__") : nullptr;
  return text != nullptr && text->is_string() && text->as_string() == "Infinity";
}

}  // namespace

Status ReadStepLimits(const JsonFields& fields, const char* name, MixerSpec& mixer) {
  const json::Value* const given = fields.Given(name);
  if (given == nullptr) return {};
  const auto bad = [&] {
    return fields.Bad(name, "a list of two numbers, of which the second may be infinite", *given);
  };
  if (!given->is_array() || given->as_array().size() != 2) return bad();
  const json::Value& least = given->as_array()[0];
  const json::Value& most = given->as_array()[1];
  if (!least.is_number() || least.as_double() < 0) return bad();
  mixer.least_step = static_cast<float>(least.as_double());
  if (IsInfinite(most)) return {};
  if (!most.is_number() || most.as_double() <= 0 || most.as_double() < least.as_double())
    return bad();
  if (std::isfinite(most.as_double())) mixer.most_step = static_cast<float>(most.as_double());
  return {};
}

MixerSpec StateSpaceMixer(const char* module, const StateSpaceSizes& sizes, double norm_eps) {
  return {.kind = MixerSpec::Kind::kStateSpace,
          .module = module,
          .conv_width = static_cast<int>(sizes.taps),
          .conv_bias = sizes.conv_bias.value_or(true),
          .has_bias = sizes.bias.value_or(false),
          .output_bias = sizes.bias.value_or(false),
          .num_heads = static_cast<int>(sizes.heads),
          .num_key_heads = static_cast<int>(sizes.groups),
          .head_dim = static_cast<int>(sizes.head_dim),
          .key_dim = static_cast<int>(sizes.state),
          .norm = MixerSpec::Norm::kOfGroups,
          .norms_before_gate = false,
          .norm_eps = static_cast<float>(norm_eps)};
}

// Source: transformers' BambaMixer.
Result<MixerSpec> ReadStateSpace(const JsonFields& fields, const ModelConfig& config,
                                 int64_t width) {
  if (config.activation != Activation::kSilu) {
    return Fail(ErrorCode::kUnsupported,
                "a hidden_act other than silu is not supported in state space layers",
                "hidden_act");
  }
  const auto integer = [&](const char* name, int64_t most, int64_t absent) -> Result<int64_t> {
    ASSIGN_OR_RETURN(const auto given, fields.Integer(name, 1, most));
    return given.value_or(absent);
  };
  ASSIGN_OR_RETURN(const int64_t expand, integer("mamba_expand", 1024, 2));
  if (width < 0) width = expand * config.hidden_size;
  ASSIGN_OR_RETURN(const int64_t heads, integer("mamba_n_heads", kMostHeads, 128));
  ASSIGN_OR_RETURN(const int64_t groups, integer("mamba_n_groups", kMostHeads, 1));
  ASSIGN_OR_RETURN(const int64_t state, integer("mamba_d_state", kWidest, 256));
  ASSIGN_OR_RETURN(const int64_t taps, integer("mamba_d_conv", 1024, 4));
  const json::Value* const head = fields.Given("mamba_d_head");
  int64_t head_dim = width / heads;
  if (head != nullptr && *head != json::Value("auto")) {
    ASSIGN_OR_RETURN(head_dim, integer("mamba_d_head", kWidest, head_dim));
  }
  if (heads * head_dim != width) {
    return fields.Bad("mamba_n_heads",
                      fmt::format("a number that makes {} with mamba_d_head {}", width, head_dim),
                      json::Value(heads));
  }
  ASSIGN_OR_RETURN(const auto conv_bias, fields.Bool("mamba_conv_bias"));
  ASSIGN_OR_RETURN(const auto bias, fields.Bool("mamba_proj_bias"));
  MixerSpec mixer = StateSpaceMixer("mamba",
                                    {.taps = taps,
                                     .heads = heads,
                                     .groups = groups,
                                     .head_dim = head_dim,
                                     .state = state,
                                     .conv_bias = conv_bias,
                                     .bias = bias},
                                    config.rms_norm_eps);
  RETURN_IF_ERROR(ReadStepLimits(fields, "time_step_limit", mixer));
  RETURN_IF_ERROR(CheckMixer(
      fields, {.width = "mamba_d_conv", .heads = "mamba_n_heads", .key_heads = "mamba_n_groups"},
      mixer));
  return mixer;
}

}  // namespace sluice
