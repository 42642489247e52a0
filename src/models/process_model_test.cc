// The promise over ranks that are processes: steps travel as messages, and the bits stay. The
// processes are threads here, which share nothing but a communicator.
#include "models/process_model.h"

#include <cstring>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/model_testing.h"
#include "parallel/local_group.h"

namespace sluice {
namespace {

using testing::DataFolder;
using testing::LogitRows;
using testing::Runner;
using testing::SmallOptions;

constexpr const char* kCheckpoint = "llama-bf16";

std::vector<int32_t> TokensFrom(int32_t first, int32_t count) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back((first + i * 37) % 100);
  return tokens;
}

// Sequences that begin, go on and end in turn.
LogitRows RunSteps(Runner& runner) {
  LogitRows all;
  const auto add = [&](std::vector<LogitRows> slices) {
    for (LogitRows& rows : slices) std::move(rows.begin(), rows.end(), std::back_inserter(all));
  };
  add(runner.RunStep({{0, TokensFrom(1, 40)}, {1, TokensFrom(2, 3)}}));
  for (int32_t i = 0; i < 4; ++i) add(runner.RunStep({{1, {i}}, {0, {i + 5}}}));
  runner.Forget(1);
  add(runner.RunStep({{0, {9}}, {1, TokensFrom(4, 20)}}));
  return all;
}

ParallelOptions PartsOf(const ModelConfig& config, const ModelOptions& options, int tensor_size,
                        int num_stages) {
  return {.tensor_size = tensor_size,
          .num_stages = num_stages,
          .threads = {},
          .kv_groups = KvGroups::Uniform(config.num_hidden_layers),
          .num_blocks = Runner::BlocksPerSequence(options) * options.max_slices};
}

TEST(ProcessModelTest, StepsThatTravelKeepTheirBits) {
  ModelOptions options = SmallOptions(ElementType::kBF16, ElementType::kBF16);
  options.max_context = 128;
  Runner alone(DataFolder(kCheckpoint), options, 1);
  const LogitRows expected = RunSteps(alone);
  for (const auto& [tensor_size, num_stages] : {std::pair{2, 1}, {3, 1}, {1, 2}, {2, 2}}) {
    const auto config = LoadModelConfig(DataFolder(kCheckpoint));
    ASSERT_TRUE(config);
    const ParallelOptions parallel = PartsOf(*config, options, tensor_size, num_stages);
    auto group = MakeLocalGroup({.size = parallel.num_ranks(), .spin = false});
    std::vector<std::thread> others;
    for (size_t rank = 1; rank < group.size(); ++rank) {
      others.emplace_back([&, rank] {
        ThreadPool pool(1);
        auto process = RankProcessModel::Load(*group[rank], pool, DataFolder(kCheckpoint), *config,
                                              options, parallel);
        ASSERT_TRUE(process) << process.error().message;
        (*process)->Follow();
      });
    }
    {
      ThreadPool pool(1);
      auto process = RankProcessModel::Load(*group[0], pool, DataFolder(kCheckpoint), *config,
                                            options, parallel);
      ASSERT_TRUE(process) << process.error().message;
      ParallelShare lead = (*process)->TakeLead();
      Runner runner(std::move(lead.model), std::move(lead.cache), options, 1);
      const LogitRows rows = RunSteps(runner);
      ASSERT_EQ(rows.size(), expected.size());
      for (size_t i = 0; i < rows.size(); ++i) {
        EXPECT_EQ(std::memcmp(rows[i].data(), expected[i].data(), rows[i].size() * sizeof(float)),
                  0)
            << "row " << i << " of tp " << tensor_size << " pp " << num_stages;
      }
    }
    for (std::thread& thread : others) thread.join();
  }
}

TEST(ProcessModelTest, ARankThatCannotLoadFailsAll) {
  const ModelOptions options = SmallOptions(ElementType::kBF16, ElementType::kBF16);
  const auto config = LoadModelConfig(DataFolder(kCheckpoint));
  ASSERT_TRUE(config);
  const ParallelOptions parallel = PartsOf(*config, options, 2, 1);
  auto group = MakeLocalGroup({.size = 2, .spin = false});
  std::thread other([&] {
    ThreadPool pool(1);
    EXPECT_FALSE(RankProcessModel::Load(*group[1], pool, "/nowhere", *config, options, parallel));
  });
  ThreadPool pool(1);
  std::string thrown;
  try {
    const auto process = RankProcessModel::Load(*group[0], pool, DataFolder(kCheckpoint), *config,
                                                options, parallel);
  } catch (const GroupError& error) {
    thrown = error.what();
  }
  other.join();
  EXPECT_THAT(thrown, ::testing::StartsWith("rank 1: "));
  EXPECT_THAT(thrown, ::testing::HasSubstr("/nowhere"));
}

}  // namespace
}  // namespace sluice
