// Estimates memory and speed of a model on an accelerator from the model's shape and the
// accelerator's data sheet. The estimated speeds are upper limits; good programs reach 50 to 80 %
// of them.
#pragma once

#include <cstdint>

#include "planner/accelerators.h"
#include "planner/model_shape.h"
#include "planner/weight_format.h"

namespace sluice {

// A model in its stored format. Embedding and head are BF16 in all published checkpoints.
struct StoredModel {
  ModelShape shape;
  WeightFormat format = WeightFormat::kBf16;
  int64_t kv_element_bytes = 2;  // 1 with an FP8 cache
};

// Returns the number of bytes of all weights.
double ResidentBytes(const StoredModel& model);

// Returns the number of weight bytes that a step of `batch` sequences reads. Excludes the embedding
// table, and experts that no sequence visits; assumes that sequences choose experts uniformly.
double WeightBytesPerStep(const StoredModel& model, double batch);

// Returns the number of bytes of a token's keys and values in all layers.
int64_t KvBytesPerToken(const StoredModel& model);

// Returns the number of bytes for keys and values: `fraction` of the memory that remains after the
// weights and 3 GB of context.
double KvCacheBytes(const StoredModel& model, const Accelerator& accelerator, double fraction);

// Returns the memory that remains after `weight_bytes` and 3 GB of context, at least 0.
double FreeBytes(const Accelerator& accelerator, double weight_bytes);

// Returns the time of a decode step's arithmetic, without its memory reads.
double DecodeFlopSeconds(const StoredModel& model, const Accelerator& accelerator, double batch,
                         double context);

// Returns the minimum time of a decode step of `batch` sequences with `context` tokens each: the
// larger of memory time and arithmetic time.
double DecodeStepSeconds(const StoredModel& model, const Accelerator& accelerator, double batch,
                         double context);

// Returns the minimum time to prefill a prompt of `tokens` tokens.
double PrefillSeconds(const StoredModel& model, const Accelerator& accelerator, double tokens);

struct WorkloadEstimate {
  // Number of sequences that fit in memory at the same time, at most `concurrency`.
  int64_t num_resident = 0;
  double step_seconds = 0;
  double prefill_seconds = 0;  // per prompt
  // Output tokens per second if prefill and decode steps alternate.
  double serial_tokens_per_second = 0;
};

// Estimates `concurrency` streams of consecutive requests with `input` and `output` tokens.
WorkloadEstimate EstimateWorkload(const StoredModel& model, const Accelerator& accelerator,
                                  int64_t concurrency, int64_t input, int64_t output,
                                  double kv_fraction);

}  // namespace sluice
