// Tests models with layers that attend only to a chunk or a window. Answers do not depend on how
// the prompt is divided, on the prefix cache or on preemptions. Blocks to which no layer attends
// any more are reused.
#include <random>

#include <gtest/gtest.h>

#include "engine/engine_testing.h"

namespace sluice {
namespace {

using testing::CollectingSink;
using testing::FakeEngine;
using testing::FakeModel;
using testing::GreedyFor;

const std::vector<AttentionSpan> kGroupings[] = {
    {{}, {.chunk = 16}},                         // whole blocks
    {{}, {.chunk = 10}, {.chunk = 10}},          // chunks that begin inside blocks
    {{}, {.window = 7}},                         // a window
    {{}, {.chunk = 8}, {.window = 13}, {}, {}},  // both, in several groups
    // The last group has both a chunk and a window, as in only a few models.
    {{}, {.window = 1}, {.chunk = 24, .window = 5}}};

class EngineGroups : public ::testing::TestWithParam<size_t> {
 protected:
  static std::vector<AttentionSpan> Groups() { return kGroupings[GetParam()]; }
  static std::vector<int32_t> Prompt(int first, size_t length) {
    std::vector<int32_t> prompt;
    for (size_t i = 0; i < length; ++i)
      prompt.push_back(static_cast<int32_t>((static_cast<size_t>(first) + i * i) % 50));
    return prompt;
  }
};

TEST_P(EngineGroups, AnswersAreThoseOfTheModelInAnyCut) {
  for (const int64_t step : {4, 5, 17, 64}) {
    FakeEngine fake({.max_num_seqs = 4, .max_num_batched_tokens = step, .groups = Groups()});
    for (const size_t length : {1u, 7u, 8u, 33u, 100u}) {
      const std::vector<int32_t> prompt = Prompt(3, length);
      const auto sink = fake.Ask(prompt, GreedyFor(30));
      EXPECT_EQ(sink->tokens(), FakeModel::Greedy(prompt, 30)) << length << " in steps of " << step;
    }
  }
}

// Prefixes of every length, on both sides of chunk boundaries.
TEST_P(EngineGroups, PrefixesAreReusedAcrossChunks) {
  FakeEngine fake({.num_blocks = 4096, .groups = Groups()});
  const std::vector<int32_t> longest = Prompt(5, 96);
  fake.Ask(longest, GreedyFor(1));
  for (size_t shared = 0; shared <= 96; shared += 3) {
    std::vector<int32_t> prompt(longest.begin(), longest.begin() + static_cast<int64_t>(shared));
    for (int i = 0; i < 9; ++i) prompt.push_back(static_cast<int32_t>((shared + 7) % 50));
    const int64_t hits = fake.observer.prefix_hits;
    const auto sink = fake.Ask(prompt, GreedyFor(12));
    EXPECT_EQ(sink->tokens(), FakeModel::Greedy(prompt, 12)) << shared;
    ASSERT_TRUE(fake.WaitForIdle());
    // No block was evicted: the whole shared part is found.
    EXPECT_GE(fake.observer.prefix_hits - hits, static_cast<int64_t>(shared) / 4 * 4) << shared;
  }
}

// There are so few blocks that cached blocks are evicted and sequences are preempted often.
TEST_P(EngineGroups, ACrowdGetsTheAnswersOfOneAlone) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  FakeEngine::Options options{.num_blocks = 0,
                              .max_model_len = 128,
                              .max_num_seqs = 8,
                              .max_num_batched_tokens = 24,
                              .groups = Groups()};
  for (const AttentionSpan& group : options.groups)
    options.num_blocks += MostBlocks(group, options.max_model_len, 24, options.block_size);
  options.num_blocks += 8;
  FakeEngine fake(options);
  fake.model->hang = true;  // until all requests have been submitted
  std::vector<std::pair<std::vector<int32_t>, std::shared_ptr<CollectingSink>>> asked;
  for (int i = 0; i < 60; ++i) {
    std::vector<int32_t> prompt = Prompt(static_cast<int>(random() % 3), 1 + random() % 80);
    if (random() % 2 == 0) prompt.push_back(static_cast<int32_t>(random() % 50));
    auto sink = std::make_shared<CollectingSink>(2);
    ASSERT_TRUE(fake.Submit(prompt, GreedyFor(20), sink, 2));
    asked.emplace_back(std::move(prompt), std::move(sink));
  }
  fake.model->hang = false;
  for (const auto& [prompt, sink] : asked) {
    ASSERT_TRUE(sink->WaitForEnd());
    for (const auto& sequence : sink->sequences)
      EXPECT_EQ(sequence.tokens, FakeModel::Greedy(prompt, 20));
  }
  EXPECT_TRUE(fake.WaitForIdle());
  EXPECT_GT(fake.observer.preemptions, 0);
  EXPECT_GT(fake.observer.prefix_hits, 0);
  EXPECT_TRUE(fake.engine->healthy());
  EXPECT_TRUE(fake.engine->ResetPrefixCache());
}

INSTANTIATE_TEST_SUITE_P(Groupings, EngineGroups,
                         ::testing::Range(size_t{0}, std::size(kGroupings)));

}  // namespace
}  // namespace sluice
