// For tests: models computed by several ranks of one process, and by a single rank for comparison.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "models/model_testing.h"
#include "models/parallel_model.h"

namespace sluice::testing {

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

// `folder` is not read if the options request random weights.
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

}  // namespace sluice::testing
