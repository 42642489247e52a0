// Tests ranks that are processes; in these tests they are threads of a local group.
#include "engine/process_ranks.h"

#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/source_path_testing.h"
#include "engine/engine_testing.h"
#include "parallel/local_group.h"

namespace sluice {
namespace {

using testing::CollectingSink;
using testing::CountingObserver;
using testing::GreedyFor;

constexpr int kRequests = 4;

EngineConfig Config() {
  EngineConfig config;
  config.model_folder = SourcePath("tests/data/checkpoints/qwen3-bf16");
  config.num_threads = 1;
  config.max_model_len = 128;
  config.max_num_seqs = 8;
  config.kv_cache_bytes = int64_t{4} << 20;
  return config;
}

std::vector<std::vector<int32_t>> Answers(Engine& engine) {
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  for (int i = 0; i < kRequests; ++i) {
    Request request;
    for (int k = 0; k < 20; ++k) request.prompt.push_back((i * 71 + k * k * 13 + 5) % 500);
    request.sampling = GreedyFor(40);
    request.sink = sinks.emplace_back(std::make_shared<CollectingSink>());
    const auto submitted = engine.Submit(std::move(request));
    EXPECT_TRUE(submitted) << submitted.error().message;
  }
  std::vector<std::vector<int32_t>> answers;
  for (const auto& sink : sinks) {
    EXPECT_TRUE(sink->WaitForEnd());
    EXPECT_FALSE(sink->error);
    answers.push_back(sink->tokens());
  }
  return answers;
}

TEST(ProcessRanksTest, StagesHaveAStepEachInFlight) {
  const EngineConfig config = Config();
  const auto alone = Engine::Create(config, {});
  ASSERT_TRUE(alone) << alone.error().message;
  const auto expected = Answers(**alone);

  const auto group = MakeLocalGroup({.size = 2, .spin = false});
  std::vector<ProcessRanks> ranks;
  for (const auto& rank : group) ranks.push_back({.all = rank.get(), .num_stages = 2, .here = 2});
  std::thread other([&] {
    const Status ended = RunProcessRank(ranks[1], config);
    EXPECT_TRUE(ended) << ended.error().message;
  });
  CountingObserver observer;
  Engine::Hooks hooks;
  hooks.observer = &observer;
  hooks.processes = ranks.data();
  {
    const auto engine = Engine::Create(config, hooks);
    EXPECT_TRUE(engine) << engine.error().message;
    if (engine) {
      EXPECT_EQ(Answers(**engine), expected);
    }
  }
  other.join();
  EXPECT_EQ(observer.most_in_flight, 2);
}

TEST(ProcessRanksTest, DevicesAreRefused) {
  const auto group = MakeLocalGroup({.size = 2, .spin = false});
  const ProcessRanks first{.all = group[0].get(), .num_stages = 2, .here = 2};
  Engine::Hooks hooks;
  hooks.processes = &first;
  for (const DeviceChoice device :
       {DeviceChoice::kCuda, DeviceChoice::kHip, DeviceChoice::kEmulated}) {
    EngineConfig config = Config();
    config.device = device;
    const auto engine = Engine::Create(config, hooks);
    ASSERT_FALSE(engine);
    EXPECT_EQ(engine.error().param, "device");
  }
}

// Weights of models with image towers cannot be replaced: the tower in rank 0 would keep the old
// weights.
TEST(ProcessRanksTest, ModelsThatTakeImagesAreNotReplaced) {
  EngineConfig config = Config();
  config.model_folder = SourcePath("tests/data/checkpoints/tiny-qwen3-vl");
  config.device = DeviceChoice::kCpu;
  config.enable_weight_updates = true;
  const auto group = MakeLocalGroup({.size = 1, .spin = false});
  const ProcessRanks ranks{.all = group.front().get()};
  Engine::Hooks hooks;
  hooks.processes = &ranks;
  const auto engine = Engine::Create(config, hooks);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().param, "weight-transfer-config");
  EXPECT_NE(engine.error().message.find("the image tower of a model"), std::string::npos);
  config.takes_images = false;
  EXPECT_TRUE(Engine::Create(config, hooks));
}

}  // namespace
}  // namespace sluice
