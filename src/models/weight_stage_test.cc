// Tests staging new weights, and access to pieces of the cache, in all ranks of a model. The ranks
// are threads or processes. In this test, processes are represented by threads that share only a
// communicator.
#include "models/weight_stage.h"

#include <atomic>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_testing.h"
#include "models/parallel_testing.h"
#include "models/process_model.h"
#include "parallel/local_group.h"

namespace sluice {
namespace {

using testing::Cut;
using testing::DataFolder;
using ::testing::HasSubstr;
using testing::LogitRows;
using testing::OptionsOf;
using testing::Runner;
using testing::SmallOptions;

constexpr const char* kStagedCheckpoint = "llama-bf16";
constexpr Cut kStagedRanks[] = {{2, 1}, {1, 2}, {2, 2}};

ModelOptions StageOptions() {
  return SmallOptions(ElementType::kBF16, ElementType::kBF16);
}

std::vector<int32_t> StageTokens(int32_t count) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back((7 + i * 37) % 100);
  return tokens;
}

// Copies the checkpoint to `folder` and changes the last weights.
void WriteOtherWeights(const std::filesystem::path& folder) {
  std::filesystem::copy(DataFolder(kStagedCheckpoint), folder,
                        std::filesystem::copy_options::recursive);
  const std::filesystem::path file = folder / "model.safetensors";
  std::ifstream read(file, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(read), {}};
  for (size_t i = bytes.size() / 2 + 1; i < bytes.size(); i += 38) bytes[i] ^= '\x80';
  testing::WriteFile(file, bytes);
}

// Calls `body` with the model's ranks as threads of one process.
using ShareBody = std::function<void(ParallelShare& share)>;
void WithRankThreads(const ModelConfig& config, const ParallelOptions& parallel,
                     const ShareBody& body) {
  ThreadPool pool(1);
  auto share =
      LoadParallelModel(pool, DataFolder(kStagedCheckpoint), config, StageOptions(), parallel);
  ASSERT_TRUE(share) << share.error().message;
  body(*share);
}

void WithRankProcesses(const ModelConfig& config, const ParallelOptions& parallel,
                       const ShareBody& body) {
  auto group = MakeLocalGroup({.size = parallel.num_ranks(), .spin = false});
  std::vector<std::thread> others;
  const auto load = [&](size_t rank, ThreadPool& pool) {
    auto process = RankProcessModel::Load(*group[rank], pool, DataFolder(kStagedCheckpoint), config,
                                          StageOptions(), parallel);
    EXPECT_TRUE(process) << process.error().message;
    return *std::move(process);
  };
  for (size_t rank = 1; rank < group.size(); ++rank) {
    others.emplace_back([&, rank] {
      ThreadPool pool(1);
      load(rank, pool)->Follow();
    });
  }
  {
    ThreadPool pool(1);
    ParallelShare share = load(0, pool)->TakeLead();
    body(share);
  }
  for (std::thread& thread : others) thread.join();
}

void ForAllRanks(const std::function<void(ParallelShare& share, const std::string& name)>& body) {
  const auto config = LoadModelConfig(DataFolder(kStagedCheckpoint));
  ASSERT_TRUE(config);
  for (const Cut& cut : kStagedRanks) {
    ParallelOptions parallel = OptionsOf(cut, *config, StageOptions(), 1);
    parallel.moves_blocks = true;
    WithRankThreads(*config, parallel, [&](ParallelShare& share) { body(share, cut.Name()); });
    WithRankProcesses(*config, parallel,
                      [&](ParallelShare& share) { body(share, cut.Name() + ", processes"); });
  }
}

LogitRows ScoreOf(Runner& runner) {
  runner.Forget(0);
  return runner.RunStep({{0, StageTokens(40)}}).front();
}

TEST(WeightStageTest, AllRanksSwitchTogetherOrKeepTheOldWeights) {
  const testing::TemporaryFolder temporary;
  const std::filesystem::path other = temporary.path() / "other";
  WriteOtherWeights(other);
  const std::filesystem::path half = temporary.path() / "half";
  WriteOtherWeights(half);
  std::filesystem::resize_file(half / "model.safetensors",
                               std::filesystem::file_size(half / "model.safetensors") / 2);
  Runner before_alone(DataFolder(kStagedCheckpoint), StageOptions(), 1);
  Runner after_alone(other, StageOptions(), 1);
  const LogitRows before = ScoreOf(before_alone), after = ScoreOf(after_alone);
  ASSERT_NE(before, after);
  ForAllRanks([&](ParallelShare& share, const std::string& name) {
    WeightStage& stage = *share.stage;
    Model& model = *share.model;
    ThreadPool pool(1);
    Runner runner(std::move(share.model), std::move(share.cache), StageOptions(), 1);
    EXPECT_EQ(ScoreOf(runner), before) << name;
    EXPECT_FALSE(stage.Stage(half)) << name;
    EXPECT_EQ(ScoreOf(runner), before) << name;
    // Steps are computed while the weights load.
    std::atomic<bool> is_loaded = false;
    Status staged;
    std::thread loading([&] {
      staged = stage.Stage(other);
      is_loaded = true;
    });
    do EXPECT_EQ(ScoreOf(runner), before) << name;
    while (!is_loaded);
    loading.join();
    ASSERT_TRUE(staged) << staged.error().message;
    EXPECT_EQ(ScoreOf(runner), before) << name << ": staged, not used";
    stage.Drop();
    ASSERT_TRUE(stage.Stage(other));
    for (int i = 0; i < 3; ++i) {
      stage.Switch();
      model.PrepareThread(pool);
      EXPECT_EQ(ScoreOf(runner), i % 2 == 0 ? after : before) << name;
      ASSERT_TRUE(stage.Stage(i % 2 == 0 ? DataFolder(kStagedCheckpoint) : other));
    }
    share.bytes.reset();
  });
}

TEST(WeightStageTest, EnginesThatShareWeightsShareTheNewOnes) {
  const testing::TemporaryFolder temporary;
  const std::filesystem::path other = temporary.path() / "other";
  WriteOtherWeights(other);
  Runner after_alone(other, StageOptions(), 1);
  const LogitRows after = ScoreOf(after_alone);
  const auto config = LoadModelConfig(DataFolder(kStagedCheckpoint));
  ASSERT_TRUE(config);
  const ParallelOptions parallel = OptionsOf({2, 1}, *config, StageOptions(), 1);
  ThreadPool pool(1);
  auto first =
      LoadParallelModel(pool, DataFolder(kStagedCheckpoint), *config, StageOptions(), parallel);
  ASSERT_TRUE(first);
  auto second = ShareParallelModel(*first->model, pool, StageOptions(), parallel);
  ASSERT_TRUE(second);
  ASSERT_TRUE(first->stage->Stage(other));
  ASSERT_TRUE(second->stage->StageFrom(*first->stage));
  for (ParallelShare* share : {&*first, &*second}) {
    share->stage->Switch();
    Runner runner(std::move(share->model), std::move(share->cache), StageOptions(), 1);
    EXPECT_EQ(ScoreOf(runner), after);
  }
}

TEST(CacheBytesTest, BlocksComeBackToAllRanks) {
  Runner alone(DataFolder(kStagedCheckpoint), StageOptions(), 1);
  alone.RunStep({{0, StageTokens(40)}});
  const LogitRows expected = alone.RunStep({{0, {5}}}).front();
  ForAllRanks([&](ParallelShare& share, const std::string& name) {
    CacheBytes& bytes = *share.bytes;
    const int64_t num_blocks = share.cache->num_blocks();
    Runner runner(std::move(share.model), std::move(share.cache), StageOptions(), 1);
    runner.RunStep({{0, StageTokens(40)}});
    const auto size = static_cast<size_t>(bytes.BytesOf(CachePiece::kBlock));
    std::vector<std::vector<std::byte>> kept(static_cast<size_t>(num_blocks));
    for (size_t block = 0; block < kept.size(); ++block) {
      kept[block].resize(size);
      bytes.Read(CachePiece::kBlock, static_cast<int64_t>(block), kept[block].data());
      bytes.Write(CachePiece::kBlock, static_cast<int64_t>(block),
                  std::vector<std::byte>(size, std::byte{0x3c}).data());
    }
    for (size_t block = 0; block < kept.size(); ++block)
      bytes.Write(CachePiece::kBlock, static_cast<int64_t>(block), kept[block].data());
    EXPECT_EQ(runner.RunStep({{0, {5}}}).front(), expected) << name;
    share.bytes.reset();
  });
}

}  // namespace
}  // namespace sluice
