// Parses the RoPE settings of a config.json in all their variants.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace sluice {

enum class RopeKind {
  kLlama3,   // stretches long wavelengths and keeps short ones
  kLinear,   // divides positions by the factor
  kDynamic,  // raises the base for contexts of factor * max_position_embeddings
  // Like kLlama3, with a linear ramp over dimensions; also scales the product of q and k.
  kYarn,
  kLongRope,  // one factor per frequency, for short and for long contexts (Phi-3)
};
std::string_view RopeKindName(RopeKind kind);  // Returns the spelling in rope_type.

// How rotary frequencies are scaled for contexts longer than those in training.
struct RopeScaling {
  RopeKind kind = RopeKind::kLlama3;
  double factor = 1;
  // Maximum number of positions in training, before the context was extended.
  int64_t original_max_position_embeddings = 8192;

  // kDynamic: raises the base by this factor, whatever the context length (Hunyuan).
  std::optional<double> alpha = {};

  // Only for kLlama3.
  double low_freq_factor = 1;
  double high_freq_factor = 4;

  // kLongRope: divisors, one per frequency. short_factors apply to contexts of up to the original
  // number of positions, long_factors to longer contexts.
  std::vector<double> short_factors = {}, long_factors = {};

  // kYarn: dimensions with fewer than beta_slow rotations over the original positions are
  // stretched; dimensions with more than beta_fast rotations are kept. `truncate`: rounds these
  // limits to whole dimensions. kYarn and kLongRope: q and k are multiplied by attention_factor.
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;
  double attention_factor = 1;
};

class JsonFields;
// Like JsonFields::Number, but also accepts a number as text: some writers quote rope_theta
// ("10000.0").
Result<std::optional<double>> ReadNumberOrText(const JsonFields& fields, std::string_view name,
                                               double min, double max);

struct RopeConfig {
  double theta = 0;
  std::optional<double> partial_rotary_factor = {};  // fraction of a head that is rotated, as
                                                     // stated in the config
  std::optional<RopeScaling> scaling = {};           // nullopt: unscaled
};

// Reads rope_theta with rope_scaling (transformers 4) or rope_parameters (transformers 5). As in
// transformers, a non-empty rope_scaling takes precedence over rope_parameters, and a theta inside
// the block takes precedence over one outside. theta defaults to `default_theta`, and the original
// positions to max_position_embeddings. A block without a type scales nothing. An unknown rope type
// is kUnsupported. REQUIRES: `config` is an object.
Result<RopeConfig> ParseRopeConfig(const json::Value& config, double default_theta);

// Like ParseRopeConfig, for a single block of settings, called `name` in messages. Some families
// have one block per kind of layer. REQUIRES: `config` and `block` are objects.
Result<RopeConfig> ParseRopeBlock(const json::Value& config, const json::Value& block,
                                  std::string_view name, double default_theta);

}  // namespace sluice
