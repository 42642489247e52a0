// The rotary settings of a config.json in all their spellings.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace sluice {

// The "llama3" scaling of rotary frequencies, as named in config.json.
struct RopeScaling {
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_position_embeddings = 8192;
};

struct RopeConfig {
  double theta = 0;
  std::optional<RopeScaling> scaling;  // of type "llama3"; nullopt: unscaled
};

// Reads rope_theta with rope_scaling (transformers 4) or rope_parameters (transformers 5); a theta
// inside the block wins over one outside. An unknown rope type is kUnsupported; a theta that stands
// nowhere is `default_theta`, or an error where that is 0. REQUIRES: `config` is an object.
Result<RopeConfig> ParseRopeConfig(const json::Value& config, double default_theta = 0);

// The same of one block of settings, which is named `name` in messages: families whose layers
// differ have one for each kind of layer. REQUIRES: `config` and `block` are objects.
Result<RopeConfig> ParseRopeBlock(const json::Value& config, const json::Value& block,
                                  std::string_view name, double default_theta);

}  // namespace sluice
