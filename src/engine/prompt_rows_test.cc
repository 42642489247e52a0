// Prompts of rows instead of tokens give the same bits as a prompt of the tokens with these
// embeddings, however the work is divided. Also tests which prompts are refused.
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "engine/engine_testing.h"
#include "models/model_testing.h"
#include "tensor/bfloat16.h"

namespace sluice {
namespace {

using testing::CollectingSink;
using testing::CountingObserver;
using testing::DataFolder;

struct RowsAnswer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  bool operator==(const RowsAnswer&) const = default;
};

struct RowsRun {
  int num_threads = 1;
  int64_t max_num_batched_tokens = 2048;
  bool prefix_caching = false;
  int tensor_ranks = 1;
  bool as_rows = true;
  std::optional<double> repetition_penalty = {};
};

std::vector<std::vector<int32_t>> RowsPrompts() {
  std::vector<std::vector<int32_t>> prompts;
  for (const int length : {1, 40, 40, 90}) {
    std::vector<int32_t>& prompt = prompts.emplace_back();
    for (int i = 0; i < length; ++i)
      prompt.push_back((i * 37 + static_cast<int>(prompts.size()) % 2) % 200 + 3);
  }
  return prompts;
}

// Returns rows of the model's BF16 embedding table.
std::shared_ptr<const PromptRows> RowsOf(const char* name, const std::vector<int32_t>& tokens) {
  const auto checkpoint = Checkpoint::Open(DataFolder(name));
  EXPECT_TRUE(checkpoint);
  const StoredTensor* const table = checkpoint->Find("model.embed_tokens.weight");
  EXPECT_NE(table, nullptr);
  const auto* const numbers = reinterpret_cast<const BFloat16*>(table->bytes().data());
  PromptRows rows;
  rows.width = static_cast<int64_t>(table->info->shape[1]);
  for (const int32_t token : tokens) {
    for (int64_t i = 0; i < rows.width; ++i)
      rows.values.push_back(ToFloat(numbers[token * rows.width + i]));
  }
  return std::make_shared<const PromptRows>(std::move(rows));
}

std::unique_ptr<Engine> RowsEngine(const char* name, const RowsRun& run,
                                   EngineObserver* observer = nullptr) {
  EngineConfig config;
  config.model_folder = DataFolder(name);
  config.num_threads = run.num_threads;
  config.tensor_parallel_size = run.tensor_ranks;
  config.exact_ranks = true;
  config.max_num_batched_tokens = run.max_num_batched_tokens;
  config.max_num_seqs = 6;
  config.max_model_len = 128;
  config.enable_prefix_caching = run.prefix_caching;
  config.kv_cache_bytes = int64_t{64} << 20;
  Engine::Hooks hooks;
  hooks.observer = observer;
  auto engine = Engine::Create(config, hooks);
  EXPECT_TRUE(engine) << (engine ? "" : engine.error().message);
  return engine ? *std::move(engine) : nullptr;
}

Request RowsRequest(const char* name, const std::vector<int32_t>& prompt, const RowsRun& run) {
  Request request;
  request.prompt = prompt;
  if (run.as_rows) {
    request.rows = RowsOf(name, prompt);
    request.prompt.assign(prompt.size(), 0);
  }
  request.sampling = testing::GreedyFor(16);
  request.sampling.ignore_eos = true;
  request.sampling.logprobs = 2;
  if (run.repetition_penalty) request.sampling.repetition_penalty = *run.repetition_penalty;
  return request;
}

std::vector<RowsAnswer> RowsAnswers(const char* name, const RowsRun& run, int rounds = 1,
                                    CountingObserver* observer = nullptr) {
  const auto engine = RowsEngine(name, run, observer);
  EXPECT_GT(engine->info().prompt_row_width, 0) << engine->info().no_prompt_rows;
  std::vector<RowsAnswer> answers;
  for (int round = 0; round < rounds; ++round) {
    answers.clear();
    std::vector<std::shared_ptr<CollectingSink>> sinks;
    for (const std::vector<int32_t>& prompt : RowsPrompts()) {
      Request request = RowsRequest(name, prompt, run);
      request.sink = sinks.emplace_back(std::make_shared<CollectingSink>());
      const auto handle = engine->Submit(std::move(request));
      EXPECT_TRUE(handle) << (handle ? "" : handle.error().message);
      if (!handle) return {};
    }
    for (const auto& sink : sinks) {
      EXPECT_TRUE(sink->WaitForEnd());
      EXPECT_FALSE(sink->error) << sink->error->message;
      RowsAnswer& answer = answers.emplace_back();
      answer.tokens = sink->tokens();
      for (const TokenLogprobs& entry : sink->sequences[0].logprobs)
        answer.logprobs.push_back(entry.logprob);
    }
  }
  return answers;
}

TEST(PromptRowsTest, HaveTheBitsOfTheirTokensHoweverTheWorkIsCut) {
  constexpr const char* kModel = "qwen3-bf16";
  const std::vector<RowsAnswer> expected = RowsAnswers(kModel, {.as_rows = false});
  ASSERT_EQ(expected.size(), 4u);
  EXPECT_NE(expected[1], expected[2]) << "the prompts make no difference";
  EXPECT_EQ(RowsAnswers(kModel, {.num_threads = 2}), expected);
  EXPECT_EQ(RowsAnswers(kModel, {.max_num_batched_tokens = 7}), expected) << "chunks of 7";
  EXPECT_EQ(RowsAnswers(kModel, {.num_threads = 2, .tensor_ranks = 2}), expected) << "two ranks";
  CountingObserver cached;
  EXPECT_EQ(RowsAnswers(kModel, {.num_threads = 2, .prefix_caching = true}, 2, &cached), expected)
      << "other rows of as many tokens are not found in the cache";
  EXPECT_GT(cached.prefix_hits, 32) << "the same rows are";
}

TEST(PromptRowsTest, CountForNoPenalty) {
  constexpr const char* kModel = "qwen3-bf16";
  const RowsRun run{.repetition_penalty = 1.5};
  const auto engine = RowsEngine(kModel, run);
  // Counting the placeholder token for a penalty would change the logits of token 0.
  const auto first_logprob_of_0 = [&](std::optional<double> penalty) {
    Request request = RowsRequest(kModel, RowsPrompts()[1], {.repetition_penalty = penalty});
    request.sampling.max_tokens = 1;
    request.sampling.logprobs = 1;
    request.sampling.logprob_token_ids = std::vector<int32_t>{0};
    request.sampling.logprobs_mode = LogprobsMode::kProcessedLogits;
    const auto sink = std::make_shared<CollectingSink>();
    request.sink = sink;
    EXPECT_TRUE(engine->Submit(std::move(request)));
    EXPECT_TRUE(sink->WaitForEnd());
    return sink->sequences[0].logprobs.at(0).top.at(0);
  };
  EXPECT_EQ(first_logprob_of_0(1.5), first_logprob_of_0(std::nullopt));
}

TEST(PromptRowsTest, WhatDoesNotFitIsRefused) {
  constexpr const char* kModel = "qwen3-bf16";
  const auto engine = RowsEngine(kModel, {});
  const auto refusal = [](Engine& asked, Request request) {
    request.sink = std::make_shared<CollectingSink>();
    const auto handle = asked.Submit(std::move(request));
    EXPECT_FALSE(handle);
    return handle ? "" : handle.error().param;
  };
  Request request = RowsRequest(kModel, {5, 6, 7}, {});
  request.prompt.pop_back();
  EXPECT_EQ(refusal(*engine, request), "prompt_embeds") << "another number of tokens";
  request = RowsRequest(kModel, {5, 6, 7}, {});
  request.rows = std::make_shared<const PromptRows>(PromptRows{.width = 1, .values = {1, 2, 3}});
  EXPECT_EQ(refusal(*engine, request), "prompt_embeds") << "another width";
  request = RowsRequest(kModel, {5, 6, 7}, {});
  request.sampling.prompt_logprobs = 1;
  EXPECT_EQ(refusal(*engine, request), "prompt_logprobs");
  // Gemma scales its embeddings, so it accepts no rows.
  const auto gemma = RowsEngine("tiny-gemma2", {});
  EXPECT_EQ(gemma->info().prompt_row_width, 0);
  EXPECT_EQ(refusal(*gemma, RowsRequest(kModel, {5, 6, 7}, {})), "prompt_embeds");
}

}  // namespace
}  // namespace sluice
