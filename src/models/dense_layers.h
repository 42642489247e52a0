// The layers of sentence-transformers between the pooled vector of a prompt and its embedding.
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

// Weights, inputs and sums are F32. A vector's result does not depend on those that are computed
// with it, nor on the number of threads. Thread safety: constant after Load.
class DenseLayers {
 public:
  // What the layers of `modules` take, and what a thread takes to apply them to `max_rows` vectors.
  static int64_t WeightBytes(std::span<const DenseModule> modules);
  static int64_t WorkspaceBytes(std::span<const DenseModule> modules, int64_t max_rows,
                                int num_threads);

  // From the folders of the modules below `folder`, the model's. kInvalidData names a tensor that
  // is not as its module's configuration says, or has numbers that are not finite, unless
  // `allow_nonfinite`. Of the `options` the format and that count; dummy weights are zeros.
  static Result<std::shared_ptr<const DenseLayers>> Load(ThreadPool& pool,
                                                         const std::filesystem::path& folder,
                                                         std::span<const DenseModule> modules,
                                                         const ModelOptions& options);

  // Numbers of the widest vector between two layers, at their ends included.
  int64_t widest() const { return widest_; }
  // Applies all layers to `rows` vectors [rows, in_features of the first], and returns where the
  // results [rows, out_features of the last] are: in one of the two, which have room for [rows,
  // widest()] and are overwritten.
  const float* Apply(ThreadPool& pool, int64_t rows, float* vectors, float* scratch) const;

 private:
  struct Layer {
    kernels::PackedMatrix weight;
    std::vector<float> bias;  // empty: none
    DenseActivation activation;
  };
  static Result<Layer> LoadLayer(ThreadPool& pool, const std::filesystem::path& folder,
                                 const DenseModule& module, const ModelOptions& options);

  std::vector<Layer> layers_;
  int64_t widest_ = 0;
};

}  // namespace sluice
