// An engine with a drafting head proposes the same tokens as the reference; heads that an engine
// cannot use are rejected or ignored.
#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/source_path_testing.h"
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
  config.draft.kind = head.empty() ? DraftConfig::Kind::kMtp : DraftConfig::Kind::kEagle3;
  if (!head.empty()) config.draft.folder = HeadData(head);
  config.draft.num_tokens = kProposedAtOnce;
  config.draft.adaptive = false;
  return config;
}

// Number of steps with draft tokens, of draft tokens, and of accepted ones, if the engine proposes
// the golden drafts.
struct HeadCounts {
  int64_t drafts = 0, tokens = 0, accepted = 0;
  friend bool operator==(const HeadCounts&, const HeadCounts&) = default;
};

HeadCounts GoldenCounts(const DraftCase& golden) {
  HeadCounts counts;
  // The prompt's step samples the first token. A step samples one token after the draft tokens, so
  // one place must be left for it.
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
  for (const int64_t chunk : {2048, 16}) {
    CountingObserver observer;
    Engine::Hooks hooks;
    hooks.observer = &observer;
    EngineConfig config = ConfigOfHead(pair);
    config.max_num_batched_tokens = chunk;
    const auto engine = Engine::Create(config, hooks);
    ASSERT_TRUE(engine) << engine.error().message;
    HeadCounts before;
    for (int round = 0; round < 2; ++round) {  // the second time with a cached prefix
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
                      HeadPair{"tiny-mtp-deepseek", ""}, HeadPair{"tiny-mtp-glm", ""},
                      HeadPair{"tiny-mtp-qwen", ""}),
    [](const auto& info) {
      const bool is_mtp = info.param.head[0] == '\0';
      std::string name = is_mtp ? info.param.target : info.param.head;
      std::ranges::replace(name, '-', '_');
      return name;
    });

// Answers are the same as without a head; a head that cannot be used is left out, with a note.
TEST(Heads, WhatIsNotSupportedIsLeftOut) {
  for (const HeadPair pair :
       {HeadPair{"llama-bf16", ""}, HeadPair{"tiny-eagle3-target", "llama-bf16"},
        HeadPair{"tiny-lfm2", ""}}) {
    const auto engine = Engine::Create(ConfigOfHead(pair), {});
    ASSERT_TRUE(engine) << engine.error().message;
    EXPECT_EQ((*engine)->info().num_speculative_tokens, 0);
  }
  EngineConfig ranks = ConfigOfHead({"tiny-eagle3-target", "tiny-eagle3"});
  ranks.tensor_parallel_size = 2;
  ranks.exact_ranks = true;
  const auto engine = Engine::Create(ranks, {});
  ASSERT_TRUE(engine) << engine.error().message;
  EXPECT_EQ((*engine)->info().num_speculative_tokens, 0);
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
