// An engine with a drafting head proposes the same tokens as the reference; heads that an engine
// cannot use are rejected or ignored.
#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/source_path_testing.h"
#include "checkpoint/checkpoint_testing.h"
#include "engine/adapters.h"
#include "engine/engine_testing.h"
#include "models/drafts_testing.h"

namespace sluice {
namespace {

using testing::CollectingSink;
using testing::CountingObserver;
using testing::DraftCase;
using testing::GreedyFor;

constexpr int kProposedAtOnce = 3;

std::string HeadData(const std::string& name) {
  return SourcePath("tests/data/checkpoints/" + name);
}

struct HeadPair {
  const char* target;
  const char* head;  // "": layers in the target's own checkpoint
};

EngineConfig ConfigOfHead(const HeadPair& pair) {
  const std::string head = pair.head;
  EngineConfig config;
  config.model_folder = HeadData(pair.target);
  config.dtype = config.kv_cache_dtype = ElementType::kF32;
  config.num_threads = 2;
  config.max_model_len = 192;
  config.max_num_seqs = 4;
  config.kv_cache_bytes = int64_t{8} << 20;
  config.draft.kind = head.empty()              ? DraftConfig::Kind::kMtp
                      : testing::IsDflash(head) ? DraftConfig::Kind::kDflash
                                                : DraftConfig::Kind::kEagle3;
  if (!head.empty()) config.draft.folder = HeadData(head);
  config.draft.num_tokens = kProposedAtOnce;
  config.draft.adaptive = false;
  return config;
}

// The numbers of steps with draft tokens, of draft tokens, and of accepted tokens, if the engine
// proposes the golden drafts.
struct HeadCounts {
  int64_t drafts = 0, tokens = 0, accepted = 0;
  friend bool operator==(const HeadCounts&, const HeadCounts&) = default;
};

HeadCounts GoldenCounts(const DraftCase& golden) {
  HeadCounts counts;
  // The prompt's step samples the first token. A later step samples one token after its draft
  // tokens, so there must be room for that token.
  const auto length = std::ssize(golden.answer);
  for (int64_t known = 1; known < length;) {
    const auto& drafts = golden.drafts[static_cast<size_t>(known - 1)];
    const int64_t most = std::min<int64_t>(std::ssize(drafts), length - known - 1);
    int64_t right = 0;
    while (right < most &&
           drafts[static_cast<size_t>(right)] == golden.answer[static_cast<size_t>(known + right)])
      ++right;
    counts.drafts += most > 0 ? 1 : 0;
    counts.tokens += most;
    counts.accepted += right;
    known += right + 1;
  }
  return counts;
}

class HeadEngine : public ::testing::TestWithParam<HeadPair> {};

TEST_P(HeadEngine, ProposesWhatTheReferenceProposes) {
  const HeadPair pair = GetParam();
  const std::string folder = HeadData(pair.head[0] == '\0' ? pair.target : pair.head);
  int64_t accepted = 0;
  struct Case {
    int64_t chunk = 2048;
    int tensor_ranks = 1;
    int stages = 1;
  };
  for (const Case& how : {Case{}, Case{.chunk = 16}, Case{.tensor_ranks = 2}, Case{.stages = 2},
                          Case{.chunk = 16, .stages = 2}}) {
    CountingObserver observer;
    Engine::Hooks hooks;
    hooks.observer = &observer;
    EngineConfig config = ConfigOfHead(pair);
    config.max_num_batched_tokens = how.chunk;
    config.tensor_parallel_size = how.tensor_ranks;
    config.pipeline_parallel_size = how.stages;
    config.exact_ranks = true;
    const auto engine = Engine::Create(config, hooks);
    ASSERT_TRUE(engine) << engine.error().message;
    HeadCounts before;
    for (int round = 0; round < 2; ++round) {  // the second time, with a cached prefix
      for (const DraftCase& golden : testing::ReadDrafts(folder + "/drafts.json")) {
        Request request;
        request.prompt = golden.prompt;
        request.sampling = GreedyFor(std::ssize(golden.answer));
        request.sampling.ignore_eos = true;
        const auto sink = std::make_shared<CollectingSink>();
        request.sink = sink;
        ASSERT_TRUE((*engine)->Submit(std::move(request)));
        ASSERT_TRUE(sink->WaitForEnd());
        EXPECT_EQ(sink->tokens(), golden.answer);
        const HeadCounts now = {observer.drafts, observer.draft_tokens, observer.accepted_tokens};
        const HeadCounts found = {now.drafts - before.drafts, now.tokens - before.tokens,
                                  now.accepted - before.accepted};
        before = now;
        EXPECT_EQ(found, GoldenCounts(golden))
            << "prompt of " << golden.prompt.size() << ", round " << round << ": " << found.drafts
            << " " << found.tokens << " " << found.accepted;
        accepted += found.accepted;
      }
    }
  }
  EXPECT_GT(accepted, 5);
}

INSTANTIATE_TEST_SUITE_P(
    Heads, HeadEngine,
    ::testing::Values(HeadPair{"tiny-eagle3-target", "tiny-eagle3"},
                      HeadPair{"tiny-eagle3-target", "tiny-eagle3-speculators"},
                      HeadPair{"tiny-eagle3-target", "tiny-eagle1"},
                      HeadPair{"tiny-eagle3-target", "tiny-dflash"},
                      HeadPair{"tiny-mtp-deepseek", ""}, HeadPair{"tiny-mtp-glm", ""},
                      HeadPair{"tiny-mtp-qwen", ""}),
    [](const auto& info) {
      const bool is_mtp = info.param.head[0] == '\0';
      std::string name = is_mtp ? info.param.target : info.param.head;
      std::ranges::replace(name, '-', '_');
      return name;
    });

// Answers are the same as without a head. A head that cannot be used is ignored, with a note.
TEST(Heads, WhatIsNotSupportedIsLeftOut) {
  for (const HeadPair pair :
       {HeadPair{"llama-bf16", ""}, HeadPair{"tiny-eagle3-target", "llama-bf16"},
        HeadPair{"tiny-lfm2", ""}}) {
    const auto engine = Engine::Create(ConfigOfHead(pair), {});
    ASSERT_TRUE(engine) << engine.error().message;
    EXPECT_EQ((*engine)->info().num_speculative_tokens, 0);
  }
}

// Writes an adapter of tiny-eagle3-target that changes attention and MLP.
void WriteAdapter(const std::filesystem::path& folder, unsigned seed) {
  constexpr int64_t kRank = 4, kHidden = 32, kWide = 48, kQueries = 64;
  std::mt19937 random(seed);
  std::vector<testing::TestTensor> tensors;
  const auto add = [&](const std::string& module, const char* part, int64_t rows, int64_t columns) {
    std::normal_distribution<float> numbers(0, 0.3F);
    std::string data;
    for (int64_t i = 0; i < rows * columns; ++i) {
      const float number = numbers(random);
      data.append(reinterpret_cast<const char*>(&number), sizeof(number));
    }
    tensors.push_back({fmt::format("base_model.model.model.layers.{}.{}.weight", module, part),
                       "F32",
                       {rows, columns},
                       std::move(data)});
  };
  for (int layer = 0; layer < 8; ++layer) {
    const std::string q = fmt::format("{}.self_attn.q_proj", layer);
    const std::string up = fmt::format("{}.mlp.up_proj", layer);
    add(q, "lora_A", kRank, kHidden);
    add(q, "lora_B", kQueries, kRank);
    add(up, "lora_A", kRank, kHidden);
    add(up, "lora_B", kWide, kRank);
  }
  testing::WriteFile(folder / "adapter_model.safetensors", testing::MakeSafetensors(tensors));
  testing::WriteFile(folder / "adapter_config.json",
                     R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8,
                         "target_modules": ["q_proj", "up_proj"]})");
}

struct AdaptedAnswer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  bool operator==(const AdaptedAnswer&) const = default;
};

// Returns answers of the base model and of two adapters to the same prompts, in two rounds.
std::vector<AdaptedAnswer> AdaptedAnswers(EngineConfig config, CountingObserver* observer) {
  const testing::TemporaryFolder folder;
  config.adapters.enabled = true;
  config.adapters.max_rank = 8;
  for (unsigned i = 1; i <= 2; ++i) {
    const std::string name = fmt::format("adapter-{}", i);
    WriteAdapter(folder.path() / name, i);
    config.adapters.modules.push_back({.name = name, .path = folder.path() / name, .base = ""});
  }
  Engine::Hooks hooks;
  hooks.observer = observer;
  const auto engine = Engine::Create(config, hooks);
  EXPECT_TRUE(engine) << engine.error().message;
  std::vector<AdaptedAnswer> answers;
  for (int round = 0; engine && round < 2; ++round) {
    std::vector<std::shared_ptr<CollectingSink>> sinks;
    for (int32_t i = 0; i < 9; ++i) {
      Request request;
      for (int32_t k = 0; k < 34 + 9 * (i / 3); ++k)
        request.prompt.push_back((i / 3 * 31 + k * k * 17 + 3) % 120);
      request.sampling = GreedyFor(30);
      request.sampling.ignore_eos = true;
      request.sampling.logprobs = 1;
      if (i % 2 == 1) {
        request.sampling.temperature = 0.8;
        request.sampling.seed = i;
      }
      if (i % 3 > 0) {
        auto use = (*engine)->adapters()->Acquire(fmt::format("adapter-{}", i % 3));
        EXPECT_TRUE(use) << use.error().message;
        if (use) request.adapter = *std::move(use);
      }
      request.sink = sinks.emplace_back(std::make_shared<CollectingSink>());
      EXPECT_TRUE((*engine)->Submit(std::move(request)));
    }
    for (const auto& sink : sinks) {
      EXPECT_TRUE(sink->WaitForEnd());
      EXPECT_FALSE(sink->error) << sink->error->message;
      AdaptedAnswer& answer = answers.emplace_back();
      answer.tokens = sink->tokens();
      for (const TokenLogprobs& entry : sink->sequences[0].logprobs)
        answer.logprobs.push_back(entry.logprob);
    }
  }
  return answers;
}

// The head reads the hidden rows of the adapted model, and adapters share no prefixes.
TEST(Heads, AnswersOfAdaptersAreTheSame) {
  EngineConfig config = ConfigOfHead({"tiny-eagle3-target", "tiny-eagle3"});
  config.enable_prefix_caching = true;
  EngineConfig without = config;
  without.draft = {};
  const std::vector<AdaptedAnswer> expected = AdaptedAnswers(without, nullptr);
  ASSERT_EQ(expected.size(), 18u);
  EXPECT_NE(expected[0], expected[1]) << "the adapters change nothing";
  EXPECT_NE(expected[1], expected[2]) << "the adapters change nothing";
  CountingObserver observer;
  EXPECT_EQ(AdaptedAnswers(config, &observer), expected);
  EXPECT_GT(observer.draft_tokens, 300);
  EXPECT_GT(observer.accepted_tokens, 20);
  EXPECT_LT(observer.accepted_tokens, observer.draft_tokens);
  config.max_model_len = 96;
  config.num_blocks_override = 8;
  CountingObserver preempted;
  EXPECT_EQ(AdaptedAnswers(config, &preempted), expected) << "few blocks";
  EXPECT_GT(preempted.preemptions, 0);
}

TEST(Heads, OneOfAnotherModelIsAnError) {
  EngineConfig config = ConfigOfHead({"llama-bf16", "tiny-eagle3"});
  const auto engine = Engine::Create(config, {});
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(engine.error().message,
              ::testing::AllOf(::testing::HasSubstr("tiny-eagle3: it continues hidden rows of 32"),
                               ::testing::HasSubstr("llama-bf16 have 256")));
}

}  // namespace
}  // namespace sluice
