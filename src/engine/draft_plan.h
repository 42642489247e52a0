// What the engine's plan says of a draft model.
#pragma once

#include <cstdint>

#include "models/kv_cache.h"
#include "models/model.h"
#include "models/model_config.h"

namespace sluice {

struct DraftPlan {
  ModelConfig model;
  ModelOptions options;       // for loading it
  kernels::KvLayout layout;   // of its cache
  int64_t num_blocks = 0;     // of the draft of each engine
  int64_t max_sequences = 0;  // in a step
  bool keeps_prefixes = true;
  bool adaptive = true;
  double cost_ratio = 0.1;  // of a pass to a step of the target, by the bytes that they read

  int64_t weight_bytes = 0;
  int64_t workspace_bytes = 0;  // of all engines, as the cache's
  int64_t kv_bytes = 0;

  // Of its cache: one group, so that a sequence has one table.
  KvGroups kv_groups() const { return KvGroups::Uniform(model.spec); }
  int64_t kv_bytes_per_block() const {
    return KvCache::BytesPerBlock(layout, kv_groups().layers_per_group);
  }
  int64_t total_bytes() const { return weight_bytes + workspace_bytes + kv_bytes; }
};

}  // namespace sluice
