#include "checkpoint/rope_config.h"

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

Result<RopeScaling> ParseLlama3(const JsonFields& fields, const JsonFields& top) {
  RopeScaling scaling;
  ASSIGN_OR_RETURN(scaling.factor, RequiredNumber(fields, "factor"));
  ASSIGN_OR_RETURN(scaling.low_freq_factor, RequiredNumber(fields, "low_freq_factor"));
  ASSIGN_OR_RETURN(scaling.high_freq_factor, RequiredNumber(fields, "high_freq_factor"));
  if (scaling.high_freq_factor < scaling.low_freq_factor) {
    return fields.Bad("high_freq_factor", "at least low_freq_factor",
                      *fields.Given("high_freq_factor"));
  }
  ASSIGN_OR_RETURN(std::optional<int64_t> original,
                   fields.Integer("original_max_position_embeddings", 1, kMaxPositions));
  if (!original) {
    ASSIGN_OR_RETURN(original, top.Integer("original_max_position_embeddings", 1, kMaxPositions));
  }
  if (!original) return fields.Missing("original_max_position_embeddings");
  scaling.original_max_position_embeddings = *original;
  return scaling;
}

// Reads one block over what stands in `theta` and `rope`.
Status ReadBlock(const JsonFields& top, const json::Value& block, std::string_view name,
                 std::optional<double>& theta, RopeConfig& rope) {
  const JsonFields fields(block, fmt::format("{}.", name));
  ASSIGN_OR_RETURN(const std::optional<double> inner_theta,
                   fields.Number("rope_theta", kMinTheta, kMaxTheta));
  if (inner_theta) theta = inner_theta;
  ASSIGN_OR_RETURN(const std::optional<double> partial,
                   fields.Number("partial_rotary_factor", 0, 1));
  if (partial.value_or(1) != 1) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}.partial_rotary_factor {} is not supported, only 1", name, *partial),
                fmt::format("{}.partial_rotary_factor", name));
  }
  ASSIGN_OR_RETURN(std::optional<std::string> type, fields.String("rope_type"));
  if (!type) {
    ASSIGN_OR_RETURN(type, fields.String("type"));
  }
  if (!type || *type == "default") {
    if (!type && fields.Given("factor") != nullptr) return fields.Missing("rope_type");
    return {};
  }
  if (*type != "llama3") {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}.rope_type '{}' is not supported; supported are default and llama3",
                            name, ShortName(*type)),
                fmt::format("{}.rope_type", name));
  }
  ASSIGN_OR_RETURN(rope.scaling, ParseLlama3(fields, top));
  return {};
}

Result<RopeConfig> WithTheta(RopeConfig rope, std::optional<double> theta, double default_theta) {
  if (!theta && default_theta == 0) {
    return Fail(ErrorCode::kInvalidData,
                "rope_theta is missing: it must stand in config.json or in its rope_parameters or "
                "rope_scaling",
                "rope_theta");
  }
  rope.theta = theta.value_or(default_theta);
  return rope;
}

}  // namespace

Result<RopeConfig> ParseRopeConfig(const json::Value& config, double default_theta) {
  const JsonFields top(config, "");
  RopeConfig rope;
  ASSIGN_OR_RETURN(std::optional<double> theta, top.Number("rope_theta", kMinTheta, kMaxTheta));
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    ASSIGN_OR_RETURN(const json::Value* block, top.Object(name));
    if (block == nullptr) continue;
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
