// For tests: models that ranks of one process compute, and what one rank alone does.
#pragma once

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "models/model_testing.h"
#include "models/parallel_model.h"

namespace sluice::testing {

inline std::vector<int32_t> SomeTokens(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 128);
  return tokens;
}

struct Cut {
  int tensor_size = 1;
  int num_stages = 1;

  std::string Name() const { return fmt::format("tp {} pp {}", tensor_size, num_stages); }
};

inline ParallelOptions OptionsOf(const Cut& cut, const ModelConfig& config,
                                 const ModelOptions& options, int threads) {
  ParallelOptions parallel;
  parallel.tensor_size = cut.tensor_size;
  parallel.num_stages = cut.num_stages;
  parallel.kv_groups = KvGroups::Uniform(config.spec);
  parallel.num_blocks = Runner::BlocksPerSequence(options) * options.max_slices;
  RankThreads rank;
  rank.num_threads = threads;
  parallel.threads.assign(static_cast<size_t>(parallel.num_ranks()), rank);
  return parallel;
}

// `folder` is not read where the options ask for random weights.
inline std::unique_ptr<Runner> MakeRanks(const std::filesystem::path& folder,
                                         const ModelConfig& config, const ModelOptions& options,
                                         const Cut& cut, int threads = 1) {
  ThreadPool pool(threads);
  auto share =
      LoadParallelModel(pool, folder, config, options, OptionsOf(cut, config, options, threads));
  EXPECT_TRUE(share) << folder << ", " << cut.Name() << ": " << share.error().message;
  if (!share) return nullptr;
  return std::make_unique<Runner>(std::move(share->model), std::move(share->cache), options,
                                  threads);
}

inline std::unique_ptr<Runner> MakeRanks(const std::string& name, const ModelOptions& options,
                                         const Cut& cut, int threads = 1) {
  const auto config = LoadModelConfig(DataFolder(name));
  EXPECT_TRUE(config) << name;
  return config ? MakeRanks(DataFolder(name), *config, options, cut, threads) : nullptr;
}

inline const std::vector<Cut> kCuts = {{2, 1}, {3, 1}, {4, 1}, {8, 1}, {1, 2}, {1, 3}, {2, 2}};

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
