// Memory and speed of a model on an accelerator, worked out from their figures. Speeds are limits:
// no program is faster, and good ones reach half to four fifths of them.
#pragma once

#include <cstdint>

#include "planner/accelerators.h"
#include "planner/model_shape.h"
#include "planner/weight_format.h"

namespace sluice {

// A model as it is stored; embedding and head are BF16 in all published checkpoints.
struct StoredModel {
  ModelShape shape;
  WeightFormat format = WeightFormat::kBf16;
  int64_t kv_element_bytes = 2;  // 1 with an FP8 cache
};

// All weights, in bytes.
double ResidentBytes(const StoredModel& model);

// Bytes of weights that one step reads for `batch` sequences: the embedding table is not streamed,
// and of the experts only those that some sequence visits, evenly spread.
double WeightBytesPerStep(const StoredModel& model, double batch);

// Keys and values of one token in all layers.
int64_t KvBytesPerToken(const StoredModel& model);

// Bytes left for keys and values: `fraction` of what the weights and a context of 3 GB leave.
double KvCacheBytes(const StoredModel& model, const Accelerator& accelerator, double fraction);

// What weights of `weight_bytes` and a context of 3 GB leave, at least 0.
double FreeBytes(const Accelerator& accelerator, double weight_bytes);

// The time of a decoding step's arithmetic alone.
double DecodeFlopSeconds(const StoredModel& model, const Accelerator& accelerator, double batch,
                         double context);

// The least time of one decoding step of `batch` sequences with `context` tokens each, whichever of
// memory and arithmetic is slower.
double DecodeStepSeconds(const StoredModel& model, const Accelerator& accelerator, double batch,
                         double context);

// The least time to compute a prompt.
double PrefillSeconds(const StoredModel& model, const Accelerator& accelerator, double tokens);

struct WorkloadEstimate {
  int64_t num_resident = 0;  // sequences that fit at a time, at most those asked for
  double step_seconds = 0;
  double prefill_seconds = 0;  // of one prompt
  // Output tokens per second where prompts and decoding take turns.
  double serial_tokens_per_second = 0;
};

// `concurrency` requests of `input` and `output` tokens that follow each other without pause.
WorkloadEstimate EstimateWorkload(const StoredModel& model, const Accelerator& accelerator,
                                  int64_t concurrency, int64_t input, int64_t output,
                                  double kv_fraction);

}  // namespace sluice
