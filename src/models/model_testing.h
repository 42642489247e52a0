// For tests: runs a model with its cache on one or several sequences, in steps of any sizes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/source_path_testing.h"
#include "kernels/block_maxima.h"
#include "models/kv_layout.h"
#include "models/model.h"
#include "models/model_config.h"

namespace sluice::testing {

inline std::filesystem::path DataFolder(const std::string& name) {
  return std::filesystem::path(SourcePath("tests/data/checkpoints")) / name;
}

inline ModelOptions SmallOptions(ElementType compute_type, ElementType kv_type) {
  ModelOptions options;
  options.compute_type = compute_type;
  options.kv_type = kv_type;
  options.max_rows = 512;
  options.max_slices = 8;
  options.max_context = 512;
  options.max_logit_rows = 512;
  options.state_slots = 12;  // for models that keep states
  return options;
}

using LogitRows = std::vector<std::vector<float>>;

// A loaded model and a cache with scattered block tables.
class Runner {
 public:
  Runner(const std::filesystem::path& folder, const ModelOptions& options, int num_threads)
      : options_(options), pool_(num_threads) {
    auto config = LoadModelConfig(folder);
    EXPECT_TRUE(config) << (config ? "" : config.error().message);
    Load(folder, *config);
  }
  Runner(const ModelConfig& config, const ModelOptions& options, int num_threads)
      : options_(options), pool_(num_threads) {
    Load("", config);
  }
  Runner(const std::filesystem::path& folder, const ModelConfig& config,
         const ModelOptions& options, int num_threads)
      : options_(options), pool_(num_threads) {
    Load(folder, config);
  }
  // Uses a model, and a cache that the caller allocated for these options.
  Runner(std::unique_ptr<Model> model, std::unique_ptr<KvCache> cache, const ModelOptions& options,
         int num_threads)
      : options_(options), pool_(num_threads), model_(std::move(model)), cache_(std::move(cache)) {}

  // Returns the slot of a sequence's states; slots are in the reverse order of sequences.
  int32_t StateOf(int sequence) const {
    return static_cast<int32_t>(cache_->states().num_slots()) - 1 - sequence;
  }

  // A slice of a step: the next tokens of `sequence`. Logits are computed for all of these tokens.
  struct Part {
    int sequence = 0;
    std::vector<int32_t> tokens;
    int32_t adapter = -1;  // slot of the slice's adapter
  };

  // Runs one step and returns the logits of every token, by slice.
  std::vector<LogitRows> RunStep(const std::vector<Part>& parts) {
    std::vector<int32_t> tokens, positions, rows;
    std::vector<kernels::AttentionSlice> slices;
    std::vector<std::vector<int32_t>> tables;
    std::vector<StateSlot> states;
    if (model_->config().spec.KeepsStates()) {
      for (const Part& part : parts)
        states.push_back({StateOf(part.sequence), ContextOf(part.sequence) == 0});
    }
    for (const Part& part : parts) tables.push_back(BlockTable(part.sequence));
    for (size_t i = 0; i < parts.size(); ++i) {
      int32_t& context = ContextOf(parts[i].sequence);
      const auto count = static_cast<int32_t>(parts[i].tokens.size());
      slices.push_back({static_cast<int64_t>(tokens.size()), count, context, tables[i].data()});
      for (int32_t k = 0; k < count; ++k) positions.push_back(context + k);
      tokens.insert(tokens.end(), parts[i].tokens.begin(), parts[i].tokens.end());
      context += count;
    }
    rows.resize(tokens.size());
    std::iota(rows.begin(), rows.end(), 0);
    const auto vocabulary = static_cast<size_t>(model_->config().vocab_size);
    std::vector<float> logits(rows.size() * vocabulary);
    StepInput input{tokens, positions, slices, rows};
    input.states = states;
    input.state_copies = copies_;
    input.state_snapshots = snapshots_;
    std::vector<int32_t> adapters;
    for (const Part& part : parts) adapters.push_back(part.adapter);
    if (std::ranges::max(adapters) >= 0) input.adapters = adapters;
    const int64_t blocks = kernels::NumMaxima(static_cast<int64_t>(vocabulary));
    std::vector<float> maxima;
    if (model_->finds_maxima()) maxima.resize(rows.size() * static_cast<size_t>(blocks));
    input.maxima = maxima;
    model_->Forward(pool_, input, *cache_, logits.data());
    copies_.clear();
    snapshots_.clear();
    if (!maxima.empty()) {
      std::vector<float> expected(maxima.size());
      kernels::FindMaxima(logits.data(), model_->config().vocab_size, std::ssize(rows),
                          model_->config().vocab_size, {expected.data(), blocks});
      EXPECT_TRUE(std::memcmp(maxima.data(), expected.data(), maxima.size() * 4) == 0)
          << "maxima of the logits' blocks";
    }
    std::vector<LogitRows> result;
    size_t row = 0;
    for (const Part& part : parts) {
      LogitRows& mine = result.emplace_back();
      for (size_t k = 0; k < part.tokens.size(); ++k, ++row) {
        mine.emplace_back(logits.begin() + static_cast<ptrdiff_t>(row * vocabulary),
                          logits.begin() + static_cast<ptrdiff_t>((row + 1) * vocabulary));
      }
    }
    return result;
  }

  // Restarts sequence 0 and returns the logits of all its tokens, computed in chunks of `chunk`.
  LogitRows RunAlone(const std::vector<int32_t>& tokens, size_t chunk, int32_t adapter = -1) {
    Forget(0);
    LogitRows all;
    for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
      const size_t end = std::min(tokens.size(), begin + chunk);
      auto part = RunStep({{0,
                            {tokens.begin() + static_cast<ptrdiff_t>(begin),
                             tokens.begin() + static_cast<ptrdiff_t>(end)},
                            adapter}});
      std::move(part[0].begin(), part[0].end(), std::back_inserter(all));
    }
    return all;
  }

  // Returns the results (`width` elements each) of some rows of a prompt. The prompt has 40 tokens
  // and is computed in two steps.
  std::vector<float> ResultsOfRows(const std::vector<int32_t>& tokens, int64_t width) {
    const std::vector<int32_t> table = BlockTable(0);
    std::vector<float> all;
    for (const auto& [begin, end] : {std::pair{0, 17}, std::pair{17, 40}}) {
      std::vector<int32_t> positions;
      for (int32_t i = begin; i < end; ++i) positions.push_back(i);
      const std::vector<int32_t> rows = {2, 5, end - begin - 1};
      const std::vector<kernels::AttentionSlice> slices = {{0, end - begin, begin, table.data()}};
      std::vector<float> results(rows.size() * static_cast<size_t>(width), -1);
      model_->Forward(pool_,
                      {std::span(tokens).subspan(static_cast<size_t>(begin), positions.size()),
                       positions, slices, rows},
                      *cache_, results.data());
      all.insert(all.end(), results.begin(), results.end());
    }
    return all;
  }

  int64_t BlocksPerSequence() const { return BlocksPerSequence(options_); }
  static int64_t BlocksPerSequence(const ModelOptions& options) {
    return (options.max_context + options.block_size - 1) / options.block_size;
  }
  void Forget(int sequence) { ContextOf(sequence) = 0; }
  // State copies and snapshots that the next step also performs.
  void CopyState(int32_t from, int32_t to) { copies_.push_back({from, to}); }
  void SnapshotState(int32_t slice, int32_t rows, int32_t slot) {
    snapshots_.push_back({slice, rows, slot});
  }
  // Makes the sequence continue after its first `context` tokens, whose blocks it has already
  // written.
  void GoBack(int sequence, int32_t context) { ContextOf(sequence) = context; }
  Model& model() { return *model_; }
  KvCache& cache() { return *cache_; }
  ThreadPool& pool() { return pool_; }
  std::vector<int32_t> BlockTable(int sequence) const {
    const int64_t blocks = BlocksPerSequence();
    std::vector<int32_t> table;
    for (int64_t i = 0; i < blocks; ++i)
      table.push_back(static_cast<int32_t>((i + 1) * options_.max_slices - 1 - sequence));
    return table;
  }

 private:
  int32_t& ContextOf(int sequence) {
    contexts_.resize(std::max(contexts_.size(), static_cast<size_t>(sequence) + 1));
    return contexts_[static_cast<size_t>(sequence)];
  }
  void Load(const std::filesystem::path& folder, const ModelConfig& config) {
    auto model = LoadModel(pool_, folder, config, options_);
    ASSERT_TRUE(model) << model.error().message;
    model_ = *std::move(model);
    auto cache =
        KvCache::Allocate(KvLayoutOf(config.spec, options_), KvGroups::Uniform(config.spec),
                          BlocksPerSequence() * options_.max_slices);
    ASSERT_TRUE(cache) << cache.error().message;
    const Status states =
        cache->AllocateStates(StateLayout::For(config.spec), options_.state_slots);
    ASSERT_TRUE(states) << states.error().message;
    cache_ = std::make_unique<KvCache>(*std::move(cache));
  }

  ModelOptions options_;
  ThreadPool pool_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvCache> cache_;
  std::vector<int32_t> contexts_;
  std::vector<StateCopy> copies_;
  std::vector<StateSnapshot> snapshots_;
};

inline std::vector<double> LogSoftmax(const std::vector<float>& logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - largest);
  std::vector<double> result;
  for (const float x : logits) result.push_back(x - largest - std::log(sum));
  return result;
}

inline int32_t Greedy(const std::vector<float>& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

inline std::vector<int32_t> SomeTokens(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 128);
  return tokens;
}

// Returns the number of rows that are not bit-identical.
inline size_t RowsUnlike(const LogitRows& got, const LogitRows& expected) {
  if (got.size() != expected.size()) return std::max(got.size(), expected.size());
  size_t unlike = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    unlike += got[i].size() != expected[i].size() ||
              std::memcmp(got[i].data(), expected[i].data(), got[i].size() * sizeof(float)) != 0;
  }
  return unlike;
}

}  // namespace sluice::testing
