// Warm-up steps of a device model before the first request.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/thread_pool.h"
#include "models/kv_cache.h"
#include "models/model.h"

namespace sluice {

struct WarmUpLimits {
  int64_t max_rows = 256;   // rows of a warm-up step; at most the limit in ModelOptions
  int64_t max_slices = 64;  // slices of a warm-up step; at most the limit in ModelOptions
  int64_t max_context = 4096;
};

// Runs steps like those of requests: prompts, one token for few and for many sequences, a long
// context, drawn tokens and returned logits. At the first launch of a kernel, the driver loads its
// code and allocates its memory; warm-up steps avoid this delay in the first request. The content
// of the first block of `cache` is undefined afterwards. kInternal, with the model's message, if a
// step fails, because then no request would succeed.
Status WarmUp(Model& model, ThreadPool& pool, KvCache& cache, const WarmUpLimits& limits);

}  // namespace sluice
