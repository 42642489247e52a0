// Random load: the contract holds after each step.
#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/scheduler_testing.h"

namespace sluice {
namespace {

using testing::FourTokenBlocks;
using testing::Options;
using testing::Sequence;
using testing::World;

// Checks C1 and C2 after every step (World::Step), C5: every sequence finishes, and C7: nothing is
// left, with sequences that share prefixes, run out of blocks and are aborted at any time.
class RandomScheduler : public ::testing::TestWithParam<int> {};

TEST_P(RandomScheduler, KeepsTheContract) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  SchedulerLimits limits = FourTokenBlocks();
  limits.max_num_seqs = pick(1, 8);
  limits.max_num_batched_tokens = std::max(limits.max_num_seqs, pick(4, 40));
  limits.max_prompt_logit_rows = pick(1, 8);
  limits.policy = static_cast<SchedulingPolicy>(pick(0, 2));
  limits.ageing = {.level_us = pick(0, 5), .max_levels = pick(0, 3)};
  limits.long_prefill_token_threshold = random() % 3 == 0 ? pick(1, 12) : 0;
  limits.chunked_prefill = random() % 4 != 0;
  if (!limits.chunked_prefill) limits.max_num_batched_tokens = 64;
  const bool has_states = random() % 2 == 0;
  if (has_states) limits.snapshot_interval = 4 * pick(0, 4);
  for (int64_t others = pick(0, 3); others > 0; --others) {
    AttentionSpan group;
    if (!has_states && random() % 4 != 0)
      (random() % 2 == 0 ? group.chunk : group.window) = pick(1, 30);
    limits.groups.push_back(group);
  }
  const int64_t num_blocks = std::max(pick(16, 40), MostBlocks(limits, 64) + pick(0, 20));
  World world(limits, num_blocks, random() % 4 != 0,
              has_states ? limits.max_num_seqs + pick(0, 12) : 0);
  if (has_states) world.set_is_late([&] { return random() % 20 == 0; });
  std::vector<Sequence*> live;
  for (int step = 0; step < 2000; ++step) {
    if (live.size() < 40 && random() % 4 == 0) {
      Options options{.prompt = pick(1, 40), .output = pick(1, 24)};
      if (random() % 2 == 0) options.first_token = static_cast<int>(random() % 3);
      options.priority = pick(-2, 2);
      options.client = static_cast<uint64_t>(pick(1, 4));
      options.all_rows = random() % 8 == 0;
      if (random() % 4 == 0 && !live.empty()) options.leader = live.back();
      live.push_back(&world.Add("s", options));
    }
    world.Step();
    std::erase_if(live, [](const Sequence* sequence) { return sequence->finished_at >= 0; });
    if (!live.empty() && random() % 16 == 0) {
      const auto first = static_cast<int64_t>(random() % live.size());
      const auto last = std::min<int64_t>(first + pick(1, 3), std::ssize(live));
      world.Abort({live.begin() + first, live.begin() + last});
      live.erase(live.begin() + first, live.begin() + last);
    }
    if (::testing::Test::HasFailure()) return;
  }
  world.RunUntilIdle(20000);
  for (const Sequence* sequence : live) EXPECT_GT(sequence->finished_at, 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomScheduler, ::testing::Range(0, 40));

// Compares who is admitted and preempted with ranks computed here from priorities and waiting
// times.
class RandomPriorities : public ::testing::TestWithParam<int> {};

TEST_P(RandomPriorities, TheBestRankIsAdmittedAndTheWorstPreempted) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  SchedulerLimits limits = FourTokenBlocks();
  limits.max_num_seqs = pick(1, 6);
  limits.max_num_batched_tokens = std::max(limits.max_num_seqs, pick(4, 40));
  limits.policy = pick(0, 1) == 0 ? SchedulingPolicy::kPriority : SchedulingPolicy::kFair;
  const int64_t level_us = random() % 3 == 0 ? 0 : pick(1, 3) * 1000000, max_levels = pick(0, 4);
  limits.ageing = {.level_us = level_us, .max_levels = max_levels};
  const int64_t spread = random() % 2 == 0 ? 3 : 1000000;
  World world(limits, pick(16, 30), false);
  std::vector<Sequence*> live;
  std::map<const Sequence*, double> waited;  // seconds
  const auto rank_of = [&](const Sequence* sequence) {
    const double gained =
        level_us == 0 ? 0
                      : std::floor(waited[sequence] * 1e6 / static_cast<double>(level_us) * 1e3);
    return 1e3 * static_cast<double>(sequence->priority) -
           std::min(gained, 1e3 * static_cast<double>(max_levels));
  };
  using State = ScheduledSequence::State;
  int64_t num_compared = 0;
  for (int step = 0; step < 1500 && !HasFailure(); ++step) {
    if (live.size() < 20 && random() % 3 == 0) {
      live.push_back(&world.Add(
          "s", {.prompt = pick(1, 30), .output = pick(1, 30), .priority = pick(-spread, spread)}));
    }
    const double seconds = static_cast<double>(pick(0, 8)) / 8;
    world.Pass(seconds);
    std::map<const Sequence*, State> before;
    for (const Sequence* sequence : live) {
      before[sequence] = sequence->state;
      if (sequence->state == State::kWaiting) waited[sequence] += seconds;
    }
    std::map<const Sequence*, int64_t> preemptions;
    for (const Sequence* sequence : live) preemptions[sequence] = sequence->num_preemptions;
    world.Step();
    std::vector<const Sequence*> admitted, preempted, left, kept;
    for (const Sequence* sequence : live) {
      if (sequence->num_preemptions > preemptions[sequence])
        preempted.push_back(sequence);
      else if (before[sequence] == State::kRunning)
        kept.push_back(sequence);
      else
        (sequence->state == State::kWaiting ? left : admitted).push_back(sequence);
    }
    for (const Sequence* in : admitted) {
      for (const Sequence* out : left) {
        ++num_compared;
        EXPECT_LE(rank_of(in), rank_of(out));
      }
    }
    for (const Sequence* out : preempted) {
      for (const Sequence* in : kept) {
        ++num_compared;
        EXPECT_GE(rank_of(out), rank_of(in));
      }
    }
    std::erase_if(live, [](const Sequence* sequence) { return sequence->finished_at >= 0; });
  }
  EXPECT_GT(num_compared, 100);
  world.RunUntilIdle(20000);
  for (const Sequence* sequence : live) EXPECT_GT(sequence->finished_at, 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomPriorities, ::testing::Range(0, 30));

}  // namespace
}  // namespace sluice
