// adapter_config.json of peft: how an adapter's factors are scaled, and what it asks for that is
// not served.
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
  bool rank_stabilized = false;  // alpha / sqrt(rank) in place of alpha / rank
  // Ranks and alphas of modules whose names match a pattern, in the order of the file: the first
  // counts. A module's rank is that of its tensors; one that is neither `rank` nor here is an
  // error.
  std::vector<std::pair<NamePattern, int64_t>> rank_pattern;
  std::vector<std::pair<NamePattern, double>> alpha_pattern;
  // Modules whose own tensors the file holds (modules_to_save): names, or last parts of names.
  std::vector<std::string> saved_modules;

  // What B A x of `module` ("model.layers.0.self_attn.q_proj"), of that rank, is multiplied by.
  // Source: peft tuners/lora/layer.py, update_layer.
  float ScaleOf(std::string_view module, int64_t rank) const;
  // Whether a tensor of `module` may have that rank.
  int64_t RankOf(std::string_view module) const;
};

// kUnsupported names a field of peft that changes what an adapter computes in a way that is not
// served (DoRA, replicated layers, ...); kInvalidData one that is missing or of a wrong type.
Result<LoraConfig> ParseLoraConfig(const json::Value& value);

}  // namespace sluice
