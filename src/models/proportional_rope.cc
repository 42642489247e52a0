#include "models/proportional_rope.h"

#include <fmt/format.h>

#include "checkpoint/rope_config.h"
#include "models/rope_frequencies.h"

namespace sluice {
namespace {

// Returns frequencies for the first part of a head. The other frequencies are 0, which means no
// rotation. Source: transformers modeling_rope_utils.py (_compute_proportional_rope_parameters).
std::vector<float> ProportionalRope(int64_t head_dim, double theta, double part, double factor) {
  const RopeConfig rope{.theta = theta};
  std::vector<float> table = RopeTableOf(rope, head_dim);
  const auto rotated = static_cast<size_t>(part * static_cast<double>(head_dim) / 2);
  for (size_t i = 0; i < table.size(); ++i)
    table[i] = i < rotated ? static_cast<float>(table[i] / factor) : 0.0f;
  return table;
}

}  // namespace

Result<std::vector<float>> ReadRopeOfKind(const JsonFields& fields, const char* kind,
                                          int64_t head_dim, double default_theta,
                                          double default_part) {
  ASSIGN_OR_RETURN(const json::Value* ropes, fields.Object("rope_parameters"));
  double theta = default_theta, part = default_part, factor = 1;
  if (ropes != nullptr) {
    ASSIGN_OR_RETURN(const json::Value* block, JsonFields(*ropes, "rope_parameters.").Object(kind));
    if (block == nullptr) return JsonFields(*ropes, "rope_parameters.").Missing(kind);
    const std::string name = fmt::format("rope_parameters.{}.", kind);
    const JsonFields rope(*block, name);
    ASSIGN_OR_RETURN(const auto type, rope.String("rope_type"));
    const bool is_proportional = type == "proportional";
    if (!is_proportional && type.value_or("default") != "default") {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("{}rope_type '{}' is not supported by this architecture; supported "
                              "are default and proportional",
                              name, *type),
                  name + "rope_type");
    }
    ASSIGN_OR_RETURN(const auto given_theta, ReadNumberOrText(rope, "rope_theta", 1, 1e12));
    ASSIGN_OR_RETURN(const auto given_part, rope.Number("partial_rotary_factor", 0, 1));
    ASSIGN_OR_RETURN(const auto given_factor, rope.Number("factor", 1e-3, 1e6));
    theta = given_theta.value_or(theta);
    part = is_proportional ? given_part.value_or(1) : 1;
    factor = is_proportional ? given_factor.value_or(1) : 1;
    if (!is_proportional && given_part.value_or(1) != 1) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("{}partial_rotary_factor {} is only supported with rope_type "
                              "proportional",
                              name, *given_part),
                  name + "partial_rotary_factor");
    }
  }
  return ProportionalRope(head_dim, theta, part, factor);
}

}  // namespace sluice
