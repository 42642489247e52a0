#include "checkpoint/rope_config.h"

#include <charconv>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "base/json_fields.h"

namespace sluice {
namespace {

constexpr double kMinTheta = 1, kMaxTheta = 1e12;
constexpr double kMinFactor = 1e-3, kMaxFactor = 1e6;
constexpr int64_t kMaxPositions = int64_t{1} << 31;

Result<double> RequiredNumber(const JsonFields& fields, std::string_view name) {
  ASSIGN_OR_RETURN(const std::optional<double> value, fields.Number(name, kMinFactor, kMaxFactor));
  if (!value) return fields.Missing(name);
  return *value;
}

Result<int64_t> Positions(const JsonFields& top) {
  return top.RequiredInteger("max_position_embeddings", 1, kMaxPositions);
}

// Returns original_max_position_embeddings of the block. If absent, returns that of the enclosing
// config, or else the enclosing config's max_position_embeddings.
Result<int64_t> OriginalPositions(const JsonFields& fields, const JsonFields& top) {
  constexpr std::string_view kName = "original_max_position_embeddings";
  for (const JsonFields* object : {&fields, &top}) {
    ASSIGN_OR_RETURN(const auto original, object->Integer(kName, 1, kMaxPositions));
    if (original) return *original;
  }
  return Positions(top);
}

Result<RopeScaling> ParseLlama3(const JsonFields& fields, const JsonFields& top) {
  RopeScaling scaling;
  ASSIGN_OR_RETURN(scaling.factor, RequiredNumber(fields, "factor"));
  ASSIGN_OR_RETURN(scaling.low_freq_factor, RequiredNumber(fields, "low_freq_factor"));
  ASSIGN_OR_RETURN(scaling.high_freq_factor, RequiredNumber(fields, "high_freq_factor"));
  if (scaling.high_freq_factor < scaling.low_freq_factor) {
    return fields.Bad("high_freq_factor", "at least low_freq_factor",
                      *fields.Given("high_freq_factor"));
  }
  ASSIGN_OR_RETURN(scaling.original_max_position_embeddings, OriginalPositions(fields, top));
  return scaling;
}

// Refuses a setting of other programs that affects results. A value of 1 is accepted, because it
// has no effect.
Status RefuseUnlessOne(const JsonFields& fields, std::string_view block, const char* name) {
  ASSIGN_OR_RETURN(const auto value, fields.Number(name, -kMaxFactor, kMaxFactor));
  if (value.value_or(1) == 1) return {};
  return Fail(ErrorCode::kUnsupported,
              fmt::format("{}.{} {} is not supported, only 1", block, name, *value),
              fmt::format("{}.{}", block, name));
}

Result<RopeScaling> ParseLinear(const JsonFields& fields, const JsonFields& top) {
  RopeScaling scaling{.kind = RopeKind::kLinear};
  ASSIGN_OR_RETURN(scaling.factor, RequiredNumber(fields, "factor"));
  ASSIGN_OR_RETURN(scaling.original_max_position_embeddings, Positions(top));
  return scaling;
}

Result<RopeScaling> ParseDynamic(const JsonFields& fields, const JsonFields& top) {
  RopeScaling scaling{.kind = RopeKind::kDynamic};
  ASSIGN_OR_RETURN(scaling.alpha, fields.Number("alpha", 1, kMaxFactor));
  ASSIGN_OR_RETURN(const auto factor, fields.Number("factor", 1, kMaxFactor));
  if (!factor && !scaling.alpha) return fields.Missing("factor");
  scaling.factor = factor.value_or(1);
  ASSIGN_OR_RETURN(scaling.original_max_position_embeddings, Positions(top));
  return scaling;
}

// Source: transformers modeling_rope_utils.py (_compute_yarn_parameters).
Result<double> AttentionFactor(const JsonFields& fields, double factor) {
  const auto magnitude = [factor](double scale) {
    return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1;
  };
  ASSIGN_OR_RETURN(const auto given, fields.Number("attention_factor", kMinFactor, kMaxFactor));
  if (given) return *given;
  ASSIGN_OR_RETURN(const auto scale, fields.Number("mscale", 0, kMaxFactor));
  ASSIGN_OR_RETURN(const auto all_dim, fields.Number("mscale_all_dim", 0, kMaxFactor));
  if (scale.value_or(0) != 0 && all_dim.value_or(0) != 0)
    return magnitude(*scale) / magnitude(*all_dim);
  return magnitude(1);
}

Result<RopeScaling> ParseYarn(const JsonFields& fields, const JsonFields& top,
                              std::string_view block) {
  for (const char* name : {"attn_factor", "extrapolation_factor"})
    RETURN_IF_ERROR(RefuseUnlessOne(fields, block, name));
  RopeScaling scaling{.kind = RopeKind::kYarn};
  ASSIGN_OR_RETURN(const int64_t positions, Positions(top));
  ASSIGN_OR_RETURN(scaling.original_max_position_embeddings, OriginalPositions(fields, top));
  ASSIGN_OR_RETURN(const auto factor, fields.Number("factor", 1, kMaxFactor));
  scaling.factor = factor.value_or(static_cast<double>(positions) /
                                   static_cast<double>(scaling.original_max_position_embeddings));
  ASSIGN_OR_RETURN(const auto fast, fields.Number("beta_fast", kMinFactor, kMaxFactor));
  ASSIGN_OR_RETURN(const auto slow, fields.Number("beta_slow", kMinFactor, kMaxFactor));
  scaling.beta_fast = fast.value_or(scaling.beta_fast);
  scaling.beta_slow = slow.value_or(scaling.beta_slow);
  if (scaling.beta_fast < scaling.beta_slow) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("{}.beta_fast {} must be at least beta_slow {}", block,
                            scaling.beta_fast, scaling.beta_slow),
                fmt::format("{}.beta_fast", block));
  }
  ASSIGN_OR_RETURN(const auto truncate, fields.Bool("truncate"));
  scaling.truncate = truncate.value_or(true);
  ASSIGN_OR_RETURN(scaling.attention_factor, AttentionFactor(fields, scaling.factor));
  return scaling;
}

Result<std::vector<double>> Factors(const JsonFields& fields, std::string_view name) {
  constexpr size_t kMostFactors = 4096;
  const json::Value* list = fields.Given(name);
  if (list == nullptr) return fields.Missing(name);
  constexpr const char* kExpected = "a list of numbers above 0, one for every two rotated elements";
  if (!list->is_array() || list->as_array().empty() || list->as_array().size() > kMostFactors)
    return fields.Bad(name, kExpected, *list);
  std::vector<double> factors;
  for (const json::Value& value : list->as_array()) {
    if (!value.is_number() || !(value.as_double() >= kMinFactor && value.as_double() <= kMaxFactor))
      return fields.Bad(name, kExpected, value);
    factors.push_back(value.as_double());
  }
  return factors;
}

// Source: transformers modeling_rope_utils.py (_compute_longrope_parameters).
Result<RopeScaling> ParseLongRope(const JsonFields& fields, const JsonFields& top) {
  RopeScaling scaling{.kind = RopeKind::kLongRope};
  ASSIGN_OR_RETURN(scaling.short_factors, Factors(fields, "short_factor"));
  ASSIGN_OR_RETURN(scaling.long_factors, Factors(fields, "long_factor"));
  if (scaling.short_factors.size() != scaling.long_factors.size()) {
    return fields.Bad("long_factor", "a list as long as short_factor",
                      *fields.Given("long_factor"));
  }
  ASSIGN_OR_RETURN(const int64_t positions, Positions(top));
  ASSIGN_OR_RETURN(const int64_t original, OriginalPositions(fields, top));
  scaling.original_max_position_embeddings = original;
  ASSIGN_OR_RETURN(const auto factor, fields.Number("factor", kMinFactor, kMaxFactor));
  scaling.factor = factor.value_or(static_cast<double>(positions) / static_cast<double>(original));
  ASSIGN_OR_RETURN(const auto given, fields.Number("attention_factor", kMinFactor, kMaxFactor));
  scaling.attention_factor = given.value_or(
      scaling.factor <= 1 || original <= 1
          ? 1
          : std::sqrt(1 + std::log(scaling.factor) / std::log(static_cast<double>(original))));
  return scaling;
}

Result<RopeScaling> ParseScaling(const std::string& type, const JsonFields& fields,
                                 const JsonFields& top, std::string_view block) {
  if (type == "llama3") return ParseLlama3(fields, top);
  if (type == "linear") return ParseLinear(fields, top);
  if (type == "dynamic") return ParseDynamic(fields, top);
  if (type == "yarn" || type == "deepseek_yarn") return ParseYarn(fields, top, block);
  // The first configurations of Phi-3 use the name "su".
  if (type == "longrope" || type == "su") return ParseLongRope(fields, top);
  return Fail(ErrorCode::kUnsupported,
              fmt::format("{}.rope_type '{}' is not supported; supported are default, linear, "
                          "dynamic, yarn, longrope and llama3",
                          block, ShortName(type)),
              fmt::format("{}.rope_type", block));
}

// Reads a block. Its values replace those in `theta` and `rope`.
Status ReadBlock(const JsonFields& top, const json::Value& block, std::string_view name,
                 std::optional<double>& theta, RopeConfig& rope) {
  const JsonFields fields(block, fmt::format("{}.", name));
  ASSIGN_OR_RETURN(const std::optional<double> inner_theta,
                   ReadNumberOrText(fields, "rope_theta", kMinTheta, kMaxTheta));
  if (inner_theta) theta = inner_theta;
  ASSIGN_OR_RETURN(const std::optional<double> partial,
                   fields.Number("partial_rotary_factor", 0, 1));
  if (partial) rope.partial_rotary_factor = partial;
  ASSIGN_OR_RETURN(std::optional<std::string> type, fields.String("rope_type"));
  if (!type) {
    ASSIGN_OR_RETURN(type, fields.String("type"));
  }
  // As in transformers, a block without a type has no effect, even if it has other keys. "mrope"
  // only means that positions have several axes, which is always true for the families that use it.
  const bool has_axes = fields.Given("mrope_section") != nullptr;
  if (!type || *type == "default" || (*type == "mrope" && has_axes)) return {};
  ASSIGN_OR_RETURN(rope.scaling, ParseScaling(*type, fields, top, name));
  return {};
}

Result<RopeConfig> WithTheta(RopeConfig rope, std::optional<double> theta, double default_theta) {
  rope.theta = theta.value_or(default_theta);
  if (rope.theta <= 1 && rope.scaling && rope.scaling->kind == RopeKind::kYarn) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("rope_theta {} is too small for yarn: it must be above 1", rope.theta),
                "rope_theta");
  }
  return rope;
}

}  // namespace

Result<std::optional<double>> ReadNumberOrText(const JsonFields& fields, std::string_view name,
                                               double min, double max) {
  const json::Value* value = fields.Given(name);
  if (value == nullptr || !value->is_string()) return fields.Number(name, min, max);
  const std::string& text = value->as_string();
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  // Written in this form so that NaN also fails.
  if (error == std::errc() && end == text.data() + text.size() && number >= min && number <= max)
    return number;
  return fields.Bad(name, fmt::format("a number from {} to {}", min, max), *value);
}

std::string_view RopeKindName(RopeKind kind) {
  switch (kind) {
    case RopeKind::kLlama3: return "llama3";
    case RopeKind::kLinear: return "linear";
    case RopeKind::kDynamic: return "dynamic";
    case RopeKind::kYarn: return "yarn";
    case RopeKind::kLongRope: return "longrope";
  }
  return "";
}

Result<RopeConfig> ParseRopeConfig(const json::Value& config, double default_theta) {
  const JsonFields top(config, "");
  RopeConfig rope;
  ASSIGN_OR_RETURN(std::optional<double> theta,
                   ReadNumberOrText(top, "rope_theta", kMinTheta, kMaxTheta));
  ASSIGN_OR_RETURN(rope.partial_rotary_factor, top.Number("partial_rotary_factor", 0, 1));
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    ASSIGN_OR_RETURN(const json::Value* block, top.Object(name));
    if (block == nullptr || block->as_object().empty()) continue;
    RETURN_IF_ERROR(ReadBlock(top, *block, name, theta, rope));
    break;
  }
  return WithTheta(rope, theta, default_theta);
}

Result<RopeConfig> ParseRopeBlock(const json::Value& config, const json::Value& block,
                                  std::string_view name, double default_theta) {
  RopeConfig rope;
  std::optional<double> theta;
  RETURN_IF_ERROR(ReadBlock(JsonFields(config, ""), block, name, theta, rope));
  return WithTheta(rope, theta, default_theta);
}

}  // namespace sluice
