// What the engine's plan says of a draft model, or of a drafting head.
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

  // For a head: the F32 hidden rows that a step of each engine hands on.
  int64_t handed_rows = 0;
  HandedRows Handed() const { return is_head() ? head().takes : HandedRows(); }
  int64_t HandedNumbers() const { return is_head() ? handed_rows * head().target_width() : 0; }

  int64_t weight_bytes = 0;
  int64_t workspace_bytes = 0;  // of all engines, as the cache's
  int64_t kv_bytes = 0;

  bool is_head() const { return options.drafter != nullptr; }
  const DrafterSpec& head() const { return *options.drafter; }  // REQUIRES: is_head()
  // The groups of its cache: one, so that a sequence has one table.
  KvGroups kv_groups() const { return KvGroups::Uniform(model.spec); }
  int64_t kv_bytes_per_block() const {
    return KvCache::BytesPerBlock(layout, kv_groups().layers_per_group);
  }
  int64_t total_bytes() const { return weight_bytes + workspace_bytes + kv_bytes; }
};

}  // namespace sluice
