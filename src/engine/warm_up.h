// Steps of a model on a device before the first request.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/thread_pool.h"
#include "models/kv_cache.h"
#include "models/model.h"

namespace sluice {

struct WarmUpLimits {
  int64_t max_rows = 256;   // of a warm-up step; at most ModelOptions's
  int64_t max_slices = 64;  // likewise
  int64_t max_context = 4096;
};

// Runs steps of the kinds that requests cause: prompts, one token of few and of many sequences, a
// long context, tokens drawn and logits kept. A driver loads a kernel's code, and allocates the
// memory that it needs, at the kernel's first launch: here instead of during the first request.
// Afterwards the content of the first block of `cache` is undefined. kInternal, with what the model
// says, where a step fails: then no request would succeed.
Status WarmUp(Model& model, ThreadPool& pool, KvCache& cache, const WarmUpLimits& limits);

}  // namespace sluice
