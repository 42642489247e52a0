// LoRA adapters in an engine: answers are bit-identical in every batch, and no more adapters are in
// memory than planned.
#include "engine/adapters.h"

#include <chrono>
#include <future>
#include <thread>
#include <tuple>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/source_path_testing.h"
#include "engine/engine_testing.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using testing::CollectingSink;
using testing::CountingObserver;
using ::testing::HasSubstr;

std::string AdapterPath(const std::string& name) {
  return SourcePath("tests/data/adapters/") + name;
}

EngineConfig Config(const std::vector<std::string>& adapters) {
  EngineConfig config;
  config.model_folder = SourcePath("tests/data/checkpoints/qwen3-bf16");
  config.num_threads = 2;
  config.max_model_len = 192;
  config.max_num_seqs = 16;
  config.kv_cache_bytes = int64_t{8} << 20;
  config.adapters.enabled = true;
  config.adapters.max_rank = 8;
  for (const std::string& name : adapters)
    config.adapters.modules.push_back({.name = name, .path = AdapterPath(name), .base = ""});
  return config;
}

std::unique_ptr<Engine> Make(const EngineConfig& config, EngineObserver* observer = nullptr) {
  Engine::Hooks hooks;
  hooks.observer = observer;
  auto engine = Engine::Create(config, hooks);
  EXPECT_TRUE(engine) << engine.error().message;
  return engine ? *std::move(engine) : nullptr;
}

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  bool operator==(const Answer&) const = default;
};

// A prompt and the adapter for it; "": the base model.
struct Question {
  std::vector<int32_t> prompt;
  std::string adapter;
};

std::vector<Question> Questions() {
  std::vector<Question> all;
  const char* const adapters[] = {"", "qwen3-linear", "qwen3-stabilized"};
  for (int i = 0; i < 9; ++i) {
    Question question{{}, adapters[i % 3]};
    // Each group of three has the same prompt, of several blocks.
    for (int k = 0; k < 40 + 9 * (i / 3); ++k)
      question.prompt.push_back((i / 3 * 101 + k * k * 17 + 3) % 500);
    all.push_back(std::move(question));
  }
  return all;
}

std::shared_ptr<CollectingSink> Ask(Engine& engine, const Question& question) {
  Request request;
  request.prompt = question.prompt;
  request.sampling.temperature = 0;
  request.sampling.max_tokens = 24;
  request.sampling.ignore_eos = true;
  request.sampling.logprobs = 1;
  if (!question.adapter.empty()) {
    auto use = engine.adapters()->Acquire(question.adapter);
    EXPECT_TRUE(use) << use.error().message;
    request.adapter = *std::move(use);
  }
  auto sink = std::make_shared<CollectingSink>();
  request.sink = sink;
  EXPECT_TRUE(engine.Submit(std::move(request)));
  return sink;
}

Answer Wait(CollectingSink& sink) {
  EXPECT_TRUE(sink.WaitForEnd());
  EXPECT_FALSE(sink.error) << sink.error->message;
  Answer answer{sink.tokens(), {}};
  for (const TokenLogprobs& entry : sink.sequences[0].logprobs)
    answer.logprobs.push_back(entry.logprob);
  return answer;
}

std::vector<Answer> Answers(Engine& engine, bool at_once) {
  std::vector<Answer> answers;
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  for (const Question& question : Questions()) {
    sinks.push_back(Ask(engine, question));
    if (!at_once) answers.push_back(Wait(*sinks.back()));
  }
  if (at_once) {
    for (const auto& sink : sinks) answers.push_back(Wait(*sink));
  }
  return answers;
}

TEST(AdapterPromiseTest, AnswersDoNotDependOnCompanyChunksCacheThreadsOrPreemption) {
  EngineConfig config = Config({"qwen3-linear", "qwen3-stabilized"});
  config.enable_prefix_caching = false;
  const std::vector<Answer> expected = Answers(*Make(config), /*at_once=*/false);
  EXPECT_NE(expected[0], expected[1]);
  EXPECT_NE(expected[1], expected[2]);
  EXPECT_EQ(Answers(*Make(config), /*at_once=*/true), expected) << "together";
  config.num_threads = 1;
  config.max_num_batched_tokens = 20;
  EXPECT_EQ(Answers(*Make(config), /*at_once=*/true), expected) << "one thread, small chunks";
  config.num_threads = 2;
  config.enable_prefix_caching = true;
  CountingObserver observer;
  const auto engine = Make(config, &observer);
  EXPECT_EQ(Answers(*engine, /*at_once=*/true), expected) << "an empty cache";
  const int64_t hits = observer.prefix_hits;
  EXPECT_EQ(Answers(*engine, /*at_once=*/true), expected) << "prompts in the cache";
  EXPECT_GT(observer.prefix_hits, hits);
  config.max_model_len = 96;
  config.num_blocks_override = 7;
  CountingObserver preempted;
  EXPECT_EQ(Answers(*Make(config, &preempted), /*at_once=*/true), expected) << "few blocks";
  EXPECT_GT(preempted.preemptions, 0);
}

// Ranks hold parts of the adapters, and engines share them. Adapters loaded at run time are
// available on all ranks and engines.
TEST(AdapterPromiseTest, AnswersDoNotDependOnRanksOrEngines) {
  const EngineConfig alone = Config({"qwen3-linear", "qwen3-stabilized"});
  const std::vector<Answer> expected = Answers(*Make(alone), /*at_once=*/false);
  for (const auto& [tensor_size, num_stages, num_engines] :
       {std::tuple{2, 1, 1}, {3, 1, 1}, {1, 2, 1}, {2, 2, 1}, {1, 1, 2}, {2, 1, 2}}) {
    EngineConfig config = Config({"qwen3-linear"});
    config.adapters.max_cpu_loras = 2;
    config.exact_ranks = true;
    config.tensor_parallel_size = tensor_size;
    config.pipeline_parallel_size = num_stages;
    config.data_parallel_size = num_engines;
    const auto engine = Make(config);
    ASSERT_NE(engine, nullptr);
    const Status added = engine->adapters()->Add(
        {.name = "qwen3-stabilized", .path = AdapterPath("qwen3-stabilized"), .base = ""},
        /*replace=*/false);
    ASSERT_TRUE(added) << added.error().message;
    const auto name = [&] {
      return fmt::format("tp {} pp {} dp {}", tensor_size, num_stages, num_engines);
    };
    EXPECT_EQ(Answers(*engine, /*at_once=*/true), expected) << name();
    EXPECT_TRUE(engine->adapters()->Remove("qwen3-linear"));
    EXPECT_FALSE(engine->adapters()->Acquire("qwen3-linear"));
  }
}

TEST(AdapterPromiseTest, TheBaseAnswersAsWithoutAdapters) {
  EngineConfig config = Config({"qwen3-linear", "qwen3-stabilized"});
  const std::vector<Answer> with = Answers(*Make(config), /*at_once=*/true);
  config.adapters = {};
  const auto engine = Make(config);
  EXPECT_EQ(engine->adapters(), nullptr);
  for (size_t i = 0; i < with.size(); i += 3) {
    const Question question{Questions()[i].prompt, ""};
    EXPECT_EQ(Wait(*Ask(*engine, question)), with[i]);
  }
}

// Only requests with the same adapter share a prefix, and only as long as the adapter's content
// does not change.
TEST(AdaptersTest, PrefixesAreSharedWithinAnAdapter) {
  const auto engine = Make(Config({"qwen3-linear", "qwen3-stabilized"}));
  const std::vector<int32_t> prompt = Questions()[0].prompt;
  const auto cached = [&](const std::string& adapter) {
    const auto sink = Ask(*engine, {prompt, adapter});
    Wait(*sink);
    return sink->prompt->cached_tokens;
  };
  EXPECT_EQ(cached(""), 0);
  EXPECT_EQ(cached("qwen3-linear"), 0);
  EXPECT_EQ(cached("qwen3-stabilized"), 0);
  EXPECT_GT(cached(""), 0);
  EXPECT_GT(cached("qwen3-linear"), 0);
  EXPECT_TRUE(engine->adapters()->Add(
      {.name = "qwen3-linear", .path = AdapterPath("qwen3-stabilized"), .base = ""},
      /*replace=*/true));
  EXPECT_EQ(cached("qwen3-linear"), 0);
}

TEST(AdaptersTest, MoreAdaptersThanSlots) {
  EngineConfig config = Config({"qwen3-linear", "qwen3-stabilized"});
  config.adapters.max_cpu_loras = 1;
  const std::vector<Answer> expected =
      Answers(*Make(Config({"qwen3-linear", "qwen3-stabilized"})), /*at_once=*/false);
  const auto engine = Make(config);
  Adapters& adapters = *engine->adapters();
  EXPECT_EQ(Answers(*engine, /*at_once=*/false), expected) << "each is read when it is asked for";
  auto use = adapters.Acquire("qwen3-linear");
  ASSERT_TRUE(use);
  EXPECT_TRUE((*use)->is_ready());
  auto waiting = adapters.Acquire("qwen3-stabilized");
  ASSERT_TRUE(waiting);
  EXPECT_FALSE((*waiting)->is_ready());
  EXPECT_EQ(adapters.counts().at("qwen3-stabilized").waiting, 1);
  EXPECT_TRUE((*adapters.Acquire("qwen3-linear"))->is_ready()) << "it is in a slot";
  std::promise<bool> ready;
  adapters.WhenReady(*waiting, [&](const Status& status) { ready.set_value(bool(status)); });
  *use = nullptr;
  EXPECT_TRUE(ready.get_future().get());
  EXPECT_TRUE((*waiting)->is_ready());
}

// All waiters for one adapter get its slot together. Waiters for other adapters get theirs
// afterwards, in order of arrival.
TEST(AdaptersTest, WaitersGetTheSlotInOrder) {
  EngineConfig config = Config({"qwen3-linear", "qwen3-stabilized"});
  config.adapters.max_cpu_loras = 1;
  const auto engine = Make(config);
  Adapters& adapters = *engine->adapters();
  auto use = *adapters.Acquire("qwen3-linear");
  Mutex mutex;
  CondVar told;
  std::vector<int> order;
  std::vector<std::shared_ptr<const AdapterUse>> uses;
  const auto wait_for = [&](const char* name, int number) {
    uses.push_back(*adapters.Acquire(name));
    adapters.WhenReady(uses.back(), [&, number](const Status& status) {
      EXPECT_TRUE(status);
      const MutexLock lock(mutex);
      order.push_back(number);
      told.NotifyAll();
    });
  };
  const auto expect = [&](const std::vector<int>& expected) {
    MutexLock lock(mutex);
    while (order.size() < expected.size()) told.Wait(lock);
    EXPECT_EQ(order, expected);
  };
  wait_for("qwen3-stabilized", 0);
  wait_for("qwen3-stabilized", 1);
  // A waiter that has left does not take the slot.
  adapters.WhenReady(*adapters.Acquire("qwen3-stabilized"),
                     [](const Status&) { FAIL() << "its use is gone"; });
  use = nullptr;
  expect({0, 1});
  wait_for("qwen3-linear", 2);
  wait_for("qwen3-stabilized", 3);
  expect({0, 1, 3});
  uses.erase(uses.begin(), uses.begin() + 2);
  EXPECT_EQ(uses.size(), 2U);
  uses.pop_back();
  expect({0, 1, 3, 2});
}

TEST(AdaptersTest, WhoWaitsForAnAdapterThatIsRemovedIsTold) {
  EngineConfig config = Config({"qwen3-linear", "qwen3-stabilized"});
  config.adapters.max_cpu_loras = 1;
  const auto engine = Make(config);
  Adapters& adapters = *engine->adapters();
  const auto use = *adapters.Acquire("qwen3-linear");
  const auto waiting = *adapters.Acquire("qwen3-stabilized");
  std::promise<ErrorCode> told;
  adapters.WhenReady(waiting, [&](const Status& status) { told.set_value(status.error().code); });
  EXPECT_TRUE(adapters.Remove("qwen3-stabilized"));
  EXPECT_EQ(told.get_future().get(), ErrorCode::kNotFound);
  adapters.WhenReady(waiting, [](const Status& status) {
    EXPECT_EQ(status.error().code, ErrorCode::kNotFound) << "also who asks later";
  });
}

TEST(AdaptersTest, WhatRequestsUseStaysWhenItIsRemoved) {
  const auto engine = Make(Config({"qwen3-linear"}));
  Adapters& adapters = *engine->adapters();
  auto use = adapters.Acquire("qwen3-linear");
  ASSERT_TRUE(use);
  EXPECT_EQ(adapters.counts().at("qwen3-linear").waiting, 1);
  (*use)->MarkRunning();
  EXPECT_EQ(adapters.counts().at("qwen3-linear").running, 1);
  EXPECT_TRUE(adapters.Remove("qwen3-linear"));
  EXPECT_FALSE(adapters.Has("qwen3-linear"));
  EXPECT_EQ(adapters.Remove("qwen3-linear").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(adapters.Acquire("qwen3-linear").error().code, ErrorCode::kNotFound);
  const AdapterSource again{.name = "again", .path = AdapterPath("qwen3-stabilized"), .base = ""};
  ASSERT_TRUE(adapters.Add(again, /*replace=*/false)) << "known, though there is no slot";
  EXPECT_FALSE((*adapters.Acquire("again"))->is_ready());
  EXPECT_EQ(adapters.Add(again, /*replace=*/false).error().code, ErrorCode::kInvalidArgument);
  *use = nullptr;
  EXPECT_TRUE(adapters.counts().empty());
  EXPECT_TRUE(adapters.Acquire("again"));
  ASSERT_EQ(adapters.List().size(), 1U);
  EXPECT_EQ(adapters.List()[0], again);
}

// Many threads request one adapter while others are added; each gets the right content.
TEST(AdaptersTest, ManyThreadsAskAtOnce) {
  EngineConfig config = Config({"qwen3-linear", "qwen3-stabilized"});
  config.adapters.max_cpu_loras = 1;
  const auto engine = Make(config);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < 20; ++k) {
        const auto use =
            engine->adapters()->Acquire(i % 2 == 0 ? "qwen3-linear" : "qwen3-stabilized");
        ASSERT_TRUE(use) << use.error().message;
        if (k % 5 == 0) continue;  // drops the use, whether or not it is ready
        std::promise<bool> ready;
        engine->adapters()->WhenReady(*use,
                                      [&](const Status& status) { ready.set_value(bool(status)); });
        EXPECT_TRUE(ready.get_future().get());
        EXPECT_TRUE((*use)->is_ready());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // The thread that notifies a waiter may hold the use slightly longer than the waiter.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!engine->adapters()->counts().empty() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  EXPECT_TRUE(engine->adapters()->counts().empty());
  EXPECT_TRUE(engine->adapters()->Acquire("qwen3-linear"));
}

TEST(AdapterPlanTest, MemoryOfTheSlotsIsPlanned) {
  std::string text;
  Engine::Hooks hooks;
  hooks.print_plan = [&](const std::string& line) { text += line + "\n"; };
  EngineConfig config = Config({});
  config.adapters.max_loras = 2;
  config.adapters.max_cpu_loras = 5;
  ASSERT_TRUE(Engine::Create(config, hooks));
  EXPECT_THAT(text, HasSubstr("5 in memory at a time, of rank 8 at most, in bfloat16"));
}

std::string Refusal(const EngineConfig& config) {
  const auto engine = Engine::Create(config, {});
  return engine ? "" : engine.error().param + ": " + engine.error().message;
}

TEST(AdapterPlanTest, RoomForReplacedModulesIsPlanned) {
  std::string text;
  Engine::Hooks hooks;
  hooks.print_plan = [&](const std::string& line) { text += line + "\n"; };
  EngineConfig config = Config({"gemma2-saved"});
  config.model_folder = SourcePath("tests/data/checkpoints/tiny-gemma2");
  ASSERT_TRUE(Engine::Create(config, hooks));
  EXPECT_THAT(text, HasSubstr("each with its own embed_tokens, lm_head"));

  const AdapterSource source = config.adapters.modules.front();
  config.adapters.modules.clear();
  {
    const auto engine = Engine::Create(config, {});
    ASSERT_TRUE(engine) << engine.error().message;
    const Status added = (*engine)->adapters()->Add(source, /*replace=*/false);
    ASSERT_FALSE(added);
    EXPECT_EQ(added.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(added.error().message, HasSubstr("--lora-modules-to-save"));
  }
  config.adapters.modules_to_save = {"lm_head", "embed_tokens"};
  {
    const auto engine = Engine::Create(config, {});
    ASSERT_TRUE(engine) << engine.error().message;
    const Status added = (*engine)->adapters()->Add(source, /*replace=*/false);
    EXPECT_TRUE(added) << added.error().message;
  }
  config.device = DeviceChoice::kEmulated;
  EXPECT_THAT(Refusal(config), AllOf(HasSubstr("lora_modules_to_save"), HasSubstr("CPU")));
}

TEST(AdapterPlanTest, WhatIsRefused) {
  EngineConfig config = Config({"llama-vocabulary"});
  EXPECT_THAT(Refusal(config), AllOf(HasSubstr("lora_modules"), HasSubstr("'llama-vocabulary'"),
                                     HasSubstr("different base model")));
  config = Config({"absent"});
  EXPECT_THAT(Refusal(config), HasSubstr("adapter_config.json"));
  config = Config({"qwen3-linear"});
  config.adapters.max_rank = 1;
  EXPECT_THAT(Refusal(config), HasSubstr("max_lora_rank 1"));
  config = Config({});
  config.adapters.max_loras = 4;
  config.adapters.max_cpu_loras = 3;
  EXPECT_THAT(Refusal(config), HasSubstr("max_cpu_loras (3)"));
  config = Config({});
  config.device = DeviceChoice::kEmulated;
  EXPECT_EQ(Refusal(config), "") << "a device has slots, too";
  config = Config({});
  config.model_folder = SourcePath("tests/data/checkpoints/tiny-bert");
  EXPECT_THAT(Refusal(config), HasSubstr("encoder"));
}

}  // namespace
}  // namespace sluice
