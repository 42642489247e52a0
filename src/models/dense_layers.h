// The dense layers of sentence-transformers, which map a prompt's pooled vector to its embedding.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/sentence_transformers.h"
#include "kernels/matrix.h"
#include "models/model.h"

namespace sluice {

// Weights, inputs and sums are F32. The result for a vector depends neither on other vectors in the
// same call nor on the number of threads. Thread safety: constant after Load.
class DenseLayers {
 public:
  // These functions return the bytes of the weights of `modules`, and of the workspace for
  // `max_rows` vectors.
  static int64_t WeightBytes(std::span<const DenseModule> modules);
  static int64_t WorkspaceBytes(std::span<const DenseModule> modules, int64_t max_rows,
                                int num_threads);

  // Loads each module from its folder below `folder`, the model's folder. kInvalidData names a
  // tensor that does not match its module's configuration, or that has non-finite elements unless
  // `allow_nonfinite`. Uses only `load_format` and `allow_nonfinite` of the options; dummy weights
  // are zeros.
  static Result<std::shared_ptr<const DenseLayers>> Load(ThreadPool& pool,
                                                         const std::filesystem::path& folder,
                                                         std::span<const DenseModule> modules,
                                                         const ModelOptions& options);

  // Returns the width of the widest vector, including the first input and the last result.
  int64_t widest() const { return widest_; }
  // Applies all layers to `rows` vectors [rows, in_features of the first]. Returns the results
  // [rows, out_features of the last], which are in `vectors` or in `scratch`. Both have room for
  // [rows, widest()] and are overwritten.
  const float* Apply(ThreadPool& pool, int64_t rows, float* vectors, float* scratch) const;

 private:
  struct Layer {
    kernels::PackedMatrix weight;
    std::vector<float> bias;  // empty: there is no bias
    DenseActivation activation;
  };
  static Result<Layer> LoadLayer(ThreadPool& pool, const std::filesystem::path& folder,
                                 const DenseModule& module, const ModelOptions& options);

  std::vector<Layer> layers_;
  int64_t widest_ = 0;
};

}  // namespace sluice
