// The rotary settings of a config.json in all their spellings.
#pragma once

#include <optional>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/model_config.h"

namespace sluice {

struct RopeConfig {
  double theta = 0;
  std::optional<RopeScaling> scaling;  // of type "llama3"; nullopt: unscaled
};

// Reads rope_theta with rope_scaling (transformers 4) or rope_parameters (transformers 5); a theta
// inside the block wins over one outside. An unknown rope type is kUnsupported; a theta that stands
// nowhere is an error. REQUIRES: `config` is an object.
Result<RopeConfig> ParseRopeConfig(const json::Value& config);

}  // namespace sluice
