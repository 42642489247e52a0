// The part of the engine's plan for a draft model or drafting head.
#pragma once

#include <cstdint>

#include "models/kv_cache.h"
#include "models/model.h"
#include "models/model_config.h"

namespace sluice {

struct DraftPlan {
  ModelConfig model;
  ModelOptions options;       // options with which the model is loaded
  kernels::KvLayout layout;   // layout of the draft's cache
  int64_t num_blocks = 0;     // number of blocks per engine
  int64_t max_sequences = 0;  // maximum number of sequences per step
  bool keeps_prefixes = true;
  bool adaptive = true;
  // Bytes read by a pass of the draft, divided by the bytes read by a step of the target.
  double cost_ratio = 0.1;

  // For a head: number of F32 hidden rows that each engine's step passes to the head. On a device,
  // these rows are in the target's workspace.
  int64_t handed_rows = 0;
  int64_t handed_steps = 1;  // number of steps in flight; each of them has such rows
  bool on_device = false;
  HandedRows Handed() const { return is_head() ? head().takes : HandedRows(); }
  int64_t HandedNumbers() const {
    return is_head() && !on_device ? handed_steps * handed_rows * head().target_width() : 0;
  }

  int64_t weight_bytes = 0;  // includes copied_bytes
  // Size of the copies of the target's embedding and head. They are made if several ranks compute
  // the target.
  int64_t copied_bytes = 0;
  int64_t workspace_bytes = 0;  // total of all engines, like kv_bytes
  // With a device: the bytes of the arrays that are in host memory; total of all engines.
  int64_t host_bytes = 0;
  int64_t kv_bytes = 0;

  bool is_head() const { return options.drafter != nullptr; }
  const DrafterSpec& head() const { return *options.drafter; }  // REQUIRES: is_head()
  // Returns the groups of the draft's cache: a single one, so that a sequence has one block table.
  KvGroups kv_groups() const { return KvGroups::Uniform(model.spec); }
  int64_t kv_bytes_per_block() const {
    return KvCache::BytesPerBlock(layout, kv_groups().layers_per_group);
  }
  int64_t total_bytes() const { return weight_bytes + workspace_bytes + kv_bytes; }
};

}  // namespace sluice
