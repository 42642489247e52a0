// The number of LoRA adapters for which a model has memory, and the modules that adapters may
// change.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/element_type.h"

namespace sluice {

struct LoraOptions {
  int num_slots = 0;  // maximum number of adapters in memory; 0: adapters are not served
  int64_t max_rank = 16;
  ElementType type = ElementType::kBF16;  // type of the factors: BF16 or F32
  // Last parts of the names of modules ("q_proj") that adapters may change; empty: all.
  std::vector<std::string> target_modules;
  // Whether slots have room for factors of experts; a layer may have hundreds of experts.
  bool experts = false;
  // Whether slots have room for an adapter's own biases and norms. CPU only.
  bool vectors = false;
  // Last parts of the names of modules whose weight adapters may replace ("lm_head"); each slot has
  // room for all of them. CPU only.
  std::vector<std::string> replaced_modules = {};

  bool operator==(const LoraOptions&) const = default;
};

}  // namespace sluice
