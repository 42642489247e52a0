// Reads peft's adapter_config.json, which determines how factors are scaled. Refuses unsupported
// features.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/schemes/module_pattern.h"

namespace sluice {

struct LoraConfig {
  int64_t rank = 0;              // "r"
  double alpha = 0;              // "lora_alpha"
  bool rank_stabilized = false;  // whether the scale is alpha / sqrt(rank), not alpha / rank
  // Ranks and alphas of modules whose names match a pattern, in file order; the first match counts.
  // A module's tensors must have the rank of its pattern, or else `rank`.
  std::vector<std::pair<NamePattern, int64_t>> rank_pattern;
  std::vector<std::pair<NamePattern, double>> alpha_pattern;
  // Modules whose tensors are in the file (modules_to_save), as names or last parts of names.
  std::vector<std::string> saved_modules;

  // Returns the factor by which B A x is multiplied, for `module`
  // ("model.layers.0.self_attn.q_proj") with this rank. Source: peft tuners/lora/layer.py,
  // update_layer.
  float ScaleOf(std::string_view module, int64_t rank) const;
  // Returns the rank that the configuration specifies for the factors of `module`.
  int64_t RankOf(std::string_view module) const;
};

// Parses adapter_config.json. kUnsupported names a peft field that changes the result in a way that
// sluice does not implement (DoRA, replicated layers, ...). kInvalidData names a field that is
// missing or has a wrong type.
Result<LoraConfig> ParseLoraConfig(const json::Value& value);

}  // namespace sluice
