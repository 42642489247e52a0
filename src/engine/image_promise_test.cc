// Requests with images. Answers are bit-identical for every batch, chunk size, prefix cache state,
// number of threads, ranks and stages, and after preemptions. They match transformers. Invalid
// requests are rejected.
#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/engine_testing.h"
#include "engine/process_ranks.h"
#include "models/tower/vision_testing.h"
#include "parallel/local_group.h"

namespace sluice {
namespace {

using testing::CollectingSink;
using testing::CountingObserver;
using testing::DataFolder;
using testing::VisionCase;

struct ImageAnswer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  bool operator==(const ImageAnswer&) const = default;
};

Request RequestOf(const VisionCase& golden, int64_t max_tokens) {
  Request request;
  request.prompt = golden.prompt;
  for (const auto& image : golden.images) request.images.push_back({image.position, image.image});
  request.sampling = testing::GreedyFor(max_tokens);
  request.sampling.ignore_eos = true;
  request.sampling.logprobs = 2;
  return request;
}

// The golden cases, each also with other images.
std::vector<VisionCase> ImageQuestions(const char* name) {
  std::vector<VisionCase> cases = testing::ReadVisionGolden(DataFolder(name));
  for (size_t i = 0, count = cases.size(); i < count; ++i) {
    if (cases[i].images.empty()) continue;
    VisionCase other = cases[i];
    for (auto& placed : other.images) {
      auto image = std::make_shared<ProcessedImage>(*placed.image);
      std::ranges::reverse(image->values);
      image->hash[0] += 100;
      placed.image = std::move(image);
    }
    cases.push_back(std::move(other));
  }
  return cases;
}

struct ImageRun {
  int num_threads = 1;
  int64_t max_num_batched_tokens = 2048;
  bool prefix_caching = false;
  std::optional<int64_t> num_blocks = {};
  bool at_once = true;
  int rounds = 1;
  int tensor_ranks = 1;
  int stages = 1;
  DeviceChoice device = DeviceChoice::kCpu;
  const ProcessRanks* processes = nullptr;
};

EngineConfig ImageConfig(const char* name, const ImageRun& run) {
  EngineConfig config;
  config.model_folder = DataFolder(name);
  config.num_threads = run.num_threads;
  config.tensor_parallel_size = run.tensor_ranks;
  config.pipeline_parallel_size = run.stages;
  config.exact_ranks = true;
  config.device = run.device;
  config.max_num_batched_tokens = run.max_num_batched_tokens;
  config.max_num_seqs = 6;
  config.max_model_len = 128;
  config.enable_prefix_caching = run.prefix_caching;
  config.num_blocks_override = run.num_blocks;
  config.kv_cache_bytes = int64_t{64} << 20;
  return config;
}

std::unique_ptr<Engine> ImageEngine(const char* name, const ImageRun& run,
                                    EngineObserver* observer = nullptr) {
  Engine::Hooks hooks;
  hooks.observer = observer;
  hooks.processes = run.processes;
  auto engine = Engine::Create(ImageConfig(name, run), hooks);
  EXPECT_TRUE(engine) << (engine ? "" : engine.error().message);
  return engine ? *std::move(engine) : nullptr;
}

std::vector<ImageAnswer> ImageAnswers(const char* name, const ImageRun& run,
                                      CountingObserver* observer = nullptr) {
  const auto engine = ImageEngine(name, run, observer);
  EXPECT_TRUE(engine->info().takes_images) << engine->info().no_images;
  std::vector<ImageAnswer> answers;
  for (int round = 0; round < run.rounds; ++round) {
    answers.clear();
    std::vector<std::shared_ptr<CollectingSink>> sinks;
    for (const VisionCase& question : ImageQuestions(name)) {
      Request request = RequestOf(question, 24);
      request.sink = sinks.emplace_back(std::make_shared<CollectingSink>());
      const auto handle = engine->Submit(std::move(request));
      EXPECT_TRUE(handle) << (handle ? "" : handle.error().message);
      if (!handle) return {};
      if (!run.at_once) {
        EXPECT_TRUE(sinks.back()->WaitForEnd());
      }
    }
    for (const auto& sink : sinks) {
      EXPECT_TRUE(sink->WaitForEnd());
      EXPECT_FALSE(sink->error) << sink->error->message;
      ImageAnswer& answer = answers.emplace_back();
      answer.tokens = sink->tokens();
      for (const TokenLogprobs& entry : sink->sequences[0].logprobs)
        answer.logprobs.push_back(entry.logprob);
    }
  }
  return answers;
}

class ImagePromise : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Checkpoints, ImagePromise,
                         ::testing::Values("tiny-gemma3-vision", "tiny-gemma4-vision",
                                           "tiny-llama4-vision", "tiny-qwen2.5-vl", "tiny-qwen3-vl",
                                           "tiny-qwen3.5-vl"),
                         testing::TestName);

TEST_P(ImagePromise, HoldsHoweverTheWorkIsCut) {
  const char* name = GetParam();
  const std::vector<ImageAnswer> alone = ImageAnswers(name, {.at_once = false});
  ASSERT_EQ(alone.size(), 5u);
  EXPECT_NE(alone[1].logprobs, alone[3].logprobs) << "the image makes no difference";
  EXPECT_EQ(ImageAnswers(name, {.num_threads = 2}), alone) << "all at once, two threads";
  EXPECT_EQ(ImageAnswers(name, {.max_num_batched_tokens = 7}), alone) << "chunks of 7";
  CountingObserver cached;
  EXPECT_EQ(ImageAnswers(name, {.num_threads = 2, .prefix_caching = true, .rounds = 2}, &cached),
            alone)
      << "prefix hits";
  EXPECT_GT(cached.prefix_hits, 32);
  EXPECT_EQ(ImageAnswers(name, {.num_threads = 2, .tensor_ranks = 2}), alone) << "two ranks";
  EXPECT_EQ(ImageAnswers(name, {.num_threads = 2, .max_num_batched_tokens = 7, .stages = 2}), alone)
      << "two stages";
}

// On a device, answers differ from the CPU's, but do not depend on the batch. One tower runs on the
// CPU, one on the device.
class DeviceImagePromise : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Checkpoints, DeviceImagePromise,
                         ::testing::Values("tiny-gemma3-vision", "tiny-qwen3-vl-wide"),
                         testing::TestName);

TEST_P(DeviceImagePromise, HeavyHoldsHoweverTheWorkIsCut) {
  const char* name = GetParam();
  constexpr auto kDevice = DeviceChoice::kEmulated;
  const std::vector<ImageAnswer> alone = ImageAnswers(name, {.at_once = false, .device = kDevice});
  ASSERT_EQ(alone.size(), 5u);
  EXPECT_NE(alone[1].logprobs, alone[3].logprobs) << "the image makes no difference";
  EXPECT_EQ(ImageAnswers(name, {.max_num_batched_tokens = 7, .device = kDevice}), alone)
      << "all at once, chunks of 7";
  CountingObserver cached;
  EXPECT_EQ(ImageAnswers(name, {.prefix_caching = true, .rounds = 2, .device = kDevice}, &cached),
            alone)
      << "prefix hits";
  EXPECT_GT(cached.prefix_hits, 32);
}

// Runs ranks as processes would: threads in a local group, which share nothing but messages.
TEST(ImageProcessesTest, RowsOfImagesGoToAllRanks) {
  for (const char* name : {"tiny-gemma3-vision", "tiny-qwen3-vl"}) {
    const std::vector<ImageAnswer> alone = ImageAnswers(name, {.at_once = false});
    for (const int stages : {1, 2}) {
      const auto group = MakeLocalGroup({.size = 2, .spin = false});
      std::vector<ProcessRanks> ranks;
      for (const auto& rank : group) {
        ranks.push_back(
            {.all = rank.get(), .tensor_size = 2 / stages, .num_stages = stages, .here = 2});
      }
      std::thread other([&] {
        const Status ended = RunProcessRank(ranks[1], ImageConfig(name, {}));
        EXPECT_TRUE(ended) << ended.error().message;
      });
      ImageRun run;
      run.processes = ranks.data();
      EXPECT_EQ(ImageAnswers(name, run), alone) << name << ", " << stages << " stages";
      other.join();
    }
  }
}

TEST(ImagePromiseTest, APreemptedRequestGoesOn) {
  const std::vector<ImageAnswer> alone = ImageAnswers("tiny-qwen2.5-vl", {.at_once = false});
  CountingObserver preempted;
  // On a busy machine a request may end before the next one is submitted.
  for (int round = 0; round < 20 && preempted.preemptions == 0; ++round) {
    EXPECT_EQ(ImageAnswers("tiny-qwen2.5-vl",
                           {.max_num_batched_tokens = 16, .prefix_caching = true, .num_blocks = 9},
                           &preempted),
              alone);
  }
  EXPECT_GT(preempted.preemptions, 0);
}

TEST(ImageRequestTest, WhatIsNoImageOfThePromptIsRefused) {
  const auto engine = ImageEngine("tiny-qwen3-vl", {});
  const VisionCase golden = testing::ReadVisionGolden(DataFolder("tiny-qwen3-vl"))[2];
  const auto refused = [&](Request request) {
    request.sink = std::make_shared<CollectingSink>();
    const auto handle = engine->Submit(std::move(request));
    return !handle && handle.error().code == ErrorCode::kInvalidArgument &&
           handle.error().param == "images";
  };
  Request request = RequestOf(golden, 1);
  request.images[0].position += 1;
  EXPECT_TRUE(refused(request)) << "other tokens";
  request = RequestOf(golden, 1);
  std::swap(request.images[0], request.images[1]);
  EXPECT_TRUE(refused(request)) << "descending";
  request = RequestOf(golden, 1);
  request.images[1].image = nullptr;
  EXPECT_TRUE(refused(request)) << "no content";
  request = RequestOf(golden, 1);
  auto image = std::make_shared<ProcessedImage>(*request.images[0].image);
  image->grid[2] += 2;
  request.images[0].image = image;
  EXPECT_TRUE(refused(request)) << "another grid";
}

TEST(ImageRequestTest, AModelWithoutATowerSaysSo) {
  const auto engine = ImageEngine("tiny-qwen3-narrow", {});
  EXPECT_FALSE(engine->info().takes_images);
  Request request = RequestOf(testing::ReadVisionGolden(DataFolder("tiny-qwen3-vl"))[1], 1);
  request.sink = std::make_shared<CollectingSink>();
  const auto handle = engine->Submit(std::move(request));
  ASSERT_FALSE(handle);
  EXPECT_EQ(handle.error().message, "images are not accepted: the model has no image tower");
}

}  // namespace
}  // namespace sluice
