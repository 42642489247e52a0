// The rotary settings of a config.json in all their spellings.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace sluice {

enum class RopeKind {
  kLlama3,    // long wavelengths are stretched, short ones kept
  kLinear,    // positions are divided by the factor
  kDynamic,   // the base is raised for the longest context, factor times the positions there are
  kYarn,      // as kLlama3 with a ramp over dimensions, and a factor on q . k
  kLongRope,  // a factor for each dimension, of short or of long contexts: Phi-3
};
std::string_view RopeKindName(RopeKind kind);  // as in rope_type

// How rotary frequencies are scaled for contexts beyond those of the training.
struct RopeScaling {
  RopeKind kind = RopeKind::kLlama3;
  double factor = 1;
  // Positions before scaling: those of the training.
  int64_t original_max_position_embeddings = 8192;

  // kDynamic: the base is raised by this instead, whatever the context; Hunyuan.
  std::optional<double> alpha = {};

  // kLlama3.
  double low_freq_factor = 1;
  double high_freq_factor = 4;

  // kLongRope: what each frequency is divided by, in contexts of up to the original positions and
  // in longer ones; of as many numbers as there are frequencies.
  std::vector<double> short_factors = {}, long_factors = {};

  // kYarn: rotations over the original positions below and above which dimensions are stretched or
  // kept; whether the dimensions between are counted in whole ones. kYarn and kLongRope: what q and
  // k are multiplied by.
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;
  double attention_factor = 1;
};

class JsonFields;
// As JsonFields::Number, but takes a number's text too: some writers quote rope_theta ("10000.0").
Result<std::optional<double>> ReadNumberOrText(const JsonFields& fields, std::string_view name,
                                               double min, double max);

struct RopeConfig {
  double theta = 0;
  std::optional<double> partial_rotary_factor = {};  // the part of a head that is rotated, as given
  std::optional<RopeScaling> scaling = {};           // nullopt: unscaled
};

// Reads rope_theta with rope_scaling (transformers 4) or rope_parameters (transformers 5). As in
// transformers, a rope_scaling that is not empty wins over rope_parameters, and a theta inside the
// block over one outside; a theta given nowhere is `default_theta`; a block without a type scales
// nothing; original positions that are not given are max_position_embeddings. An unknown rope type
// is kUnsupported. REQUIRES: `config` is an object.
Result<RopeConfig> ParseRopeConfig(const json::Value& config, double default_theta);

// The same of one block of settings, which is named `name` in messages: families whose layers
// differ have one for each kind of layer. REQUIRES: `config` and `block` are objects.
Result<RopeConfig> ParseRopeBlock(const json::Value& config, const json::Value& block,
                                  std::string_view name, double default_theta);

}  // namespace sluice
