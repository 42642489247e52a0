// Calculates memory and speed of a model on an accelerator from their figures. Speeds are upper
// limits; good programs reach half to four fifths of them.
#pragma once

#include <cstdint>

#include "planner/accelerators.h"
#include "planner/model_shape.h"
#include "planner/weight_format.h"

namespace sluice {

// A stored model; embedding and head are BF16 in all published checkpoints.
struct StoredModel {
  ModelShape shape;
  WeightFormat format = WeightFormat::kBf16;
  int64_t kv_element_bytes = 2;  // 1 with an FP8 cache
};

// Number of bytes of all weights.
double ResidentBytes(const StoredModel& model);

// Number of weight bytes that a step for `batch` sequences reads: without the embedding table, and
// only experts that some sequence visits, assuming an even distribution.
double WeightBytesPerStep(const StoredModel& model, double batch);

// Number of bytes of a token's keys and values in all layers.
int64_t KvBytesPerToken(const StoredModel& model);

// Number of bytes for keys and values: `fraction` of what remains after the weights and a context
// of 3 GB.
double KvCacheBytes(const StoredModel& model, const Accelerator& accelerator, double fraction);

// What remains after `weight_bytes` and a context of 3 GB, at least 0.
double FreeBytes(const Accelerator& accelerator, double weight_bytes);

// Time of a decode step's arithmetic alone.
double DecodeFlopSeconds(const StoredModel& model, const Accelerator& accelerator, double batch,
                         double context);

// Minimum time of a decode step of `batch` sequences with `context` tokens each: the maximum of
// memory and arithmetic time.
double DecodeStepSeconds(const StoredModel& model, const Accelerator& accelerator, double batch,
                         double context);

// Minimum time to prefill a prompt.
double PrefillSeconds(const StoredModel& model, const Accelerator& accelerator, double tokens);

struct WorkloadEstimate {
  int64_t num_resident = 0;  // sequences that fit at the same time, at most `concurrency`
  double step_seconds = 0;
  double prefill_seconds = 0;  // per prompt
  // Output tokens per second if prefill and decode alternate.
  double serial_tokens_per_second = 0;
};

// `concurrency` streams of consecutive requests with `input` and `output` tokens.
WorkloadEstimate EstimateWorkload(const StoredModel& model, const Accelerator& accelerator,
                                  int64_t concurrency, int64_t input, int64_t output,
                                  double kv_fraction);

}  // namespace sluice
