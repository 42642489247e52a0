// The state of a step that all layers share.
#pragma once

#include "base/thread_pool.h"
#include "kernels/matrix.h"
#include "models/model.h"
#include "models/workspace.h"

namespace sluice {

// Observes the inputs of linear layers and of the cache, for calibration.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // `x`, F32 or BF16, is about to be multiplied by `matrix`.
  virtual void OnInputs(const kernels::PackedMatrix& matrix, const kernels::Activations& x) = 0;
  // F32, after rope, as they enter the cache.
  virtual void OnKeysAndValues(const kernels::Activations& keys,
                               const kernels::Activations& values) = 0;
};

class LoraStep;
class TensorRanks;

// Where the embeddings in layers of the step's rows are (LayerEmbeddingSpec).
struct LayerEmbeddingRows {
  float* data = nullptr;   // [rows, num_layers, width]
  int64_t num_layers = 0;  // those of the model, or those behind the first stage
  int64_t first = 0;       // of them, the first that this stage computes
};

struct Step {
  ThreadPool& pool;
  const StepInput& input;
  const Workspace& workspace;
  const ModelOptions& options;
  int64_t hidden_size = 0;
  int64_t rope_width = 0;  // of a row in each of the workspace's rope tables
  float norm_eps = 0;
  float residual_scale = 1;          // DecoderSpec::residual_scale
  bool splits_inputs = false;        // DecoderSpec::SplitsInputs
  StepObserver* observer = nullptr;  // may be null
  TensorRanks* ranks = nullptr;      // null: this rank computes whole layers
  LoraStep* lora = nullptr;          // null: no sequence of the step has an adapter
  LayerEmbeddingRows layer_embeddings = {};

  // The type in which rows are written that this linear layer will read.
  ElementType InputType(const ActivationFormat& format) const {
    return splits_inputs || RoundingOf(format, options) != InputRounding::kNone
               ? ElementType::kF32
               : options.compute_type;
  }
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

// Rows of dense activations.
inline kernels::Activations DenseRows(const void* data, ElementType type, int64_t rows,
                                      int64_t cols) {
  return {.data = data, .type = type, .rows = rows, .cols = cols, .stride = cols};
}

}  // namespace sluice
