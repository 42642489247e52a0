// Runs the same sequences through a model on the CPU and on a device.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/cuda/checks/checked_device.h"
#include "models/kv_cache.h"
#include "models/model.h"

namespace sluice::selftest {

// A model with its cache, loaded for a few short sequences. Thread safety: one thread at a time.
class LoadedModel {
 public:
  // Loads the model on the CPU.
  static Result<std::unique_ptr<LoadedModel>> Load(ThreadPool& pool,
                                                   const std::filesystem::path& folder,
                                                   const ModelOptions& options);
  static Result<std::unique_ptr<LoadedModel>> LoadOn(const checks::DeviceUnderTest& device,
                                                     ThreadPool& pool,
                                                     const std::filesystem::path& folder,
                                                     const ModelOptions& options);
  virtual ~LoadedModel() = default;

  // Returns logits of every token of every sequence, [sequence][token][vocabulary]. The first
  // `prefill[s]` tokens of each are computed in two steps, split at a different place for each
  // sequence; then each step computes one token of every sequence. Error if a step fails.
  using Logits = std::vector<std::vector<std::vector<float>>>;
  Result<Logits> Run(const std::vector<std::vector<int32_t>>& sequences,
                     const std::vector<int64_t>& prefill);

  // Returns the model's greedy continuation of each prompt, `count` tokens.
  Result<std::vector<std::vector<int32_t>>> Continue(
      const std::vector<std::vector<int32_t>>& prompts, int64_t count);

  // Captures graphs for later steps of one token per sequence, which are padded to `sequences`.
  Status Record(int64_t sequences) {
    return model_->RecordSteps({.sequences = {sequences}}, *cache_);
  }
  int64_t num_replayed() const { return model_->num_replayed(); }

 protected:
  explicit LoadedModel(ThreadPool& pool, const ModelOptions& options)
      : pool_(pool), options_(options) {}

  std::unique_ptr<Model> model_;
  std::unique_ptr<KvCache> cache_;

 private:
  struct Part {
    size_t sequence;
    int64_t begin, end;  // range of tokens
  };
  Status Step(const std::vector<std::vector<int32_t>>& sequences, const std::vector<Part>& parts,
              Logits& logits);

  ThreadPool& pool_;
  ModelOptions options_;
};

// Returns limits for the sequences of this check.
ModelOptions SmallModelOptions(int64_t sequences, int64_t tokens);

}  // namespace sluice::selftest
