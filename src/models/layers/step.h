// What every layer of a decoder sees of the step.
#pragma once

#include "base/thread_pool.h"
#include "kernels/matrix.h"
#include "models/model.h"
#include "models/workspace.h"

namespace sluice {

struct Step {
  ThreadPool& pool;
  const StepInput& input;
  const Workspace& workspace;
  const ModelOptions& options;
  float norm_eps = 0;
};

// One layer's part of the cache, and the step's slices with the block tables that are its.
struct LayerCache {
  kernels::KvCacheView view;
  std::span<const kernels::AttentionSlice> slices;
};

// `bias`, or null where the layer has none.
inline const float* BiasOrNull(const std::vector<float>& bias) {
  return bias.empty() ? nullptr : bias.data();
}

// Rows of dense activations of the compute type.
inline kernels::Activations DenseRows(const void* data, ElementType type, int64_t rows,
                                      int64_t cols) {
  return {.data = data, .type = type, .rows = rows, .cols = cols, .stride = cols};
}

}  // namespace sluice
