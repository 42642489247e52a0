// The fair policy: each client gets its share whatever the others request, and choosing is cheap.
// The tests use blocks of four tokens, a runner that computes nothing, and no clock.
#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/scheduler.h"

namespace sluice {
namespace {

SchedulerLimits FairLimits() {
  SchedulerLimits limits;
  limits.block_size = 4;
  limits.max_num_batched_tokens = 16;
  limits.max_num_seqs = 4;
  limits.max_prompt_logit_rows = 4;
  limits.chunked_prefill = true;
  limits.policy = SchedulingPolicy::kFair;
  return limits;
}

struct FairSequence : ScheduledSequence {
  bool was_planned = false;
  bool has_ended = false;
};

// Runs steps with enough blocks for all, and counts each client's tokens.
class Crowd {
 public:
  explicit Crowd(const SchedulerLimits& limits, int64_t longest = 64)
      : pool_(limits.max_num_seqs * (MostBlocks(limits, longest) + 1)),
        scheduler_(limits, pool_, nullptr) {}

  FairSequence& Add(uint64_t client, int64_t prompt, int64_t output, int64_t priority = 0,
                    ScheduledSequence* leader = nullptr) {
    auto sequence = std::make_unique<FairSequence>();
    sequence->tokens.assign(static_cast<size_t>(prompt), 1);
    sequence->num_prompt_tokens = prompt;
    sequence->max_total_tokens = prompt + output;
    sequence->priority = priority;
    sequence->client = client;
    sequence->leader = leader;
    scheduler_.Add(*sequence);
    ++num_open_[client];
    sequences_.push_back(std::move(sequence));
    return *sequences_.back();
  }

  void Step() {
    const std::set<const ScheduledSequence*> ran(scheduler_.running().begin(),
                                                 scheduler_.running().end());
    const StepPlan& plan = scheduler_.Plan();
    given_in_step_.clear();
    admitted_in_step_.clear();
    for (const PlannedSlice& slice : plan.slices) {
      auto& sequence = static_cast<FairSequence&>(*slice.sequence);
      sequence.was_planned = true;
      given_in_step_[sequence.client] += slice.num_tokens;
      if (!ran.contains(&sequence)) ++admitted_in_step_[sequence.client];
    }
    scheduler_.Commit();
    for (const PlannedSlice& slice : plan.slices) {
      auto& sequence = static_cast<FairSequence&>(*slice.sequence);
      if (!slice.samples) continue;
      sequence.tokens.push_back(1);
      if (std::ssize(sequence.tokens) < sequence.max_total_tokens) continue;
      sequence.has_ended = true;
      if (--num_open_[sequence.client] == 0) num_open_.erase(sequence.client);
      scheduler_.Remove(sequence);
    }
    const Status status = scheduler_.CheckInvariant();
    EXPECT_TRUE(status) << status.error().message;
  }

  Scheduler& scheduler() { return scheduler_; }
  // Tokens and admitted sequences of the last step, by client.
  const std::map<uint64_t, int64_t>& given() const { return given_in_step_; }
  const std::map<uint64_t, int64_t>& admitted() const { return admitted_in_step_; }
  // Number of unfinished sequences, by client.
  const std::map<uint64_t, int64_t>& num_open() const { return num_open_; }

 private:
  BlockPool pool_;
  Scheduler scheduler_;
  std::vector<std::unique_ptr<FairSequence>> sequences_;
  std::map<uint64_t, int64_t> given_in_step_, admitted_in_step_, num_open_;
};

TEST(FairScheduler, ANeighbourGetsTheNextPlaceBeforeTheRestOfAFlood) {
  Crowd crowd(FairLimits());
  std::vector<FairSequence*> flood;
  for (int i = 0; i < 100; ++i) flood.push_back(&crowd.Add(1, 6, 6));
  for (int i = 0; i < 3; ++i) crowd.Step();
  FairSequence& neighbour = crowd.Add(2, 6, 6);
  while (!neighbour.has_ended) crowd.Step();
  EXPECT_LE(std::count_if(flood.begin(), flood.end(), [](const auto* s) { return s->has_ended; }),
            8);
}

TEST(FairScheduler, ALongPromptLeavesOthersAPartOfEachStep) {
  Crowd crowd(FairLimits(), 2048);
  crowd.Add(1, 2000, 1);
  for (int i = 0; i < 3; ++i) crowd.Step();
  FairSequence& neighbour = crowd.Add(2, 8, 1);
  crowd.Step();
  EXPECT_TRUE(neighbour.has_ended) << "8 of the 16 tokens of the step were its share";
  crowd.Step();
  EXPECT_EQ(crowd.given().at(1), 16) << "who is alone has the whole step, in one slice";
}

// A newcomer need not wait until a long answer ends.
TEST(FairScheduler, AClientWithoutAPlaceIsGivenOneOfAnothersMany) {
  for (const int64_t budget : {16, 4}) {
    SchedulerLimits limits = FairLimits();
    limits.max_num_batched_tokens = budget;
    Crowd crowd(limits);
    for (int i = 0; i < 8; ++i) crowd.Add(1, 4, 50);
    for (int i = 0; i < 8; ++i) crowd.Step();
    const FairSequence& a = crowd.Add(2, 4, 30);
    const FairSequence& b = crowd.Add(2, 4, 30);
    const FairSequence& c = crowd.Add(3, 4, 30);
    for (int i = 0; i < 12; ++i) crowd.Step();
    EXPECT_TRUE(a.was_planned && c.was_planned);
    EXPECT_FALSE(b.was_planned) << "its client has a place";
    EXPECT_EQ(crowd.scheduler().num_preemptions(), 2);
    for (uint64_t client = 4; client < 8; ++client) crowd.Add(client, 4, 30);
    for (int i = 0; i < 10; ++i) crowd.Step();
    EXPECT_EQ(crowd.scheduler().num_preemptions(), 3) << "nobody gives its only place";
  }
}

TEST(FairScheduler, PrioritiesCountWithinAShareOnly) {
  SchedulerLimits limits = FairLimits();
  limits.max_num_seqs = 1;
  Crowd crowd(limits);
  std::vector<FairSequence*> pushy;
  for (int i = 0; i < 20; ++i) pushy.push_back(&crowd.Add(1, 4, 4, -1000));
  const FairSequence& modest = crowd.Add(2, 4, 4, 5);
  const FairSequence& urgent = crowd.Add(2, 4, 4, 1);
  while (!urgent.has_ended) crowd.Step();
  EXPECT_FALSE(modest.was_planned);
  while (!modest.has_ended) crowd.Step();
  EXPECT_FALSE(pushy[6]->was_planned);
}

// A request with 4096 answers: neither siblings that wait for the prompt nor sequences that wait
// for a place are examined.
TEST(FairScheduler, ChoosingDoesNotLookAtAllThatWait) {
  for (const SchedulingPolicy policy :
       {SchedulingPolicy::kFcfs, SchedulingPolicy::kPriority, SchedulingPolicy::kFair}) {
    SchedulerLimits limits = FairLimits();
    limits.policy = policy;
    limits.max_num_batched_tokens = 64;
    Crowd crowd(limits, 256);
    FairSequence& first = crowd.Add(1, 200, 20);
    for (int i = 1; i < 4096; ++i) crowd.Add(1, 200, 20, 0, &first);
    crowd.Add(2, 8, 30);
    for (int i = 0; i < 40; ++i) {
      const int64_t before = crowd.scheduler().num_visits();
      crowd.Step();
      EXPECT_LE(crowd.scheduler().num_visits() - before, 64) << "step " << i;
    }
    EXPECT_TRUE(first.has_ended);
    EXPECT_EQ(crowd.scheduler().num_running(), 4);
  }
}

// Two clients always have waiting requests, one of them many large requests. Other clients come and
// go. fair_shares.h states the bounds.
class RandomFairScheduler : public ::testing::TestWithParam<unsigned> {};

TEST_P(RandomFairScheduler, EveryClientHasItsShare) {
  std::mt19937 random(GetParam());
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  constexpr int64_t kLongest = 48, kSteps = 3000;
  constexpr uint64_t kFlood = 1, kModest = 2;
  SchedulerLimits limits = FairLimits();
  limits.max_num_seqs = pick(1, 5);
  limits.max_num_batched_tokens = std::max(limits.max_num_seqs + 1, pick(4, 48));
  limits.long_prefill_token_threshold = random() % 3 == 0 ? pick(1, 12) : 0;
  const int64_t most_clients = pick(2, 6);
  const int64_t quantum = FairQuantum(limits);
  Crowd crowd(limits, kLongest);

  struct Newcomer {
    const FairSequence* first = nullptr;
    int64_t num_others = 0;  // number of clients at that time
    int64_t overtaken = 0;   // other clients' sequences admitted since then
  };
  std::vector<Newcomer> newcomers;
  int64_t flood = 0, modest = 0;  // tokens
  int64_t others = 0;             // admitted sequences
  uint64_t next_client = 3;
  for (int64_t step = 0; step < kSteps && !HasFailure(); ++step) {
    const auto num_open = [&](uint64_t client) {
      const auto found = crowd.num_open().find(client);
      return found == crowd.num_open().end() ? 0 : found->second;
    };
    while (num_open(kFlood) < 40) crowd.Add(kFlood, pick(1, 40), pick(1, 8));
    while (num_open(kModest) < limits.max_num_seqs + 1)
      crowd.Add(kModest, pick(1, 6), pick(1, 30), pick(0, 2));
    while (std::ssize(crowd.num_open()) < most_clients && random() % 2 == 0) {
      const int64_t present = std::ssize(crowd.num_open());
      newcomers.push_back({&crowd.Add(next_client++, pick(1, 40), pick(1, 8)), present, 0});
    }
    crowd.Step();
    for (Newcomer& newcomer : newcomers) {
      if (newcomer.first->was_planned) continue;
      for (const auto& [client, count] : crowd.admitted()) newcomer.overtaken += count;
      EXPECT_LE(newcomer.overtaken, 2 * quantum * newcomer.num_others);
    }
    std::erase_if(newcomers, [](const Newcomer& n) { return n.first->was_planned; });
    for (const auto& [client, tokens] : crowd.given()) {
      if (client == kFlood) flood += tokens;
      if (client == kModest) modest += tokens;
    }
    for (const auto& [client, count] : crowd.admitted()) others += client != kModest ? count : 0;
    // A share gets more than its deficit only through its running sequences, until they end.
    EXPECT_LE(std::abs(flood - modest), quantum + limits.max_num_seqs * kLongest) << step;
    EXPECT_LE(others, most_clients * (modest + 2 * quantum)) << step;
  }
  EXPECT_GT(modest, kSteps / (4 * most_clients)) << "the bounds above bound something";
  for (int64_t step = 0; step < 100000 && crowd.scheduler().has_work(); ++step) crowd.Step();
  EXPECT_FALSE(crowd.scheduler().has_work());
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomFairScheduler, ::testing::Range(0u, 20u));

TEST(FairScheduler, WhatIsOwedIsChargedToTheShare) {
  const auto given_to_second = [](int64_t owed) {
    Crowd crowd(FairLimits());
    for (int i = 0; i < 60; ++i) {
      crowd.Add(1, 8, 4);
      crowd.Add(2, 8, 4);
    }
    std::map<uint64_t, int64_t> given;
    for (int step = 0; step < 40; ++step) {
      for (ScheduledSequence* sequence : crowd.scheduler().running()) {
        if (sequence->client == 1) sequence->owed_tokens = owed;
      }
      crowd.Step();
      for (const auto& [client, tokens] : crowd.given()) given[client] += tokens;
    }
    return static_cast<double>(given[2]) / static_cast<double>(given[1] + given[2]);
  };
  EXPECT_NEAR(given_to_second(0), 0.5, 0.1);
  EXPECT_GT(given_to_second(8), 0.65);
}

TEST(Scheduler, AHeldSequenceSkipsStepsAndComputesItsLastTokenAgain) {
  SchedulerLimits limits = FairLimits();
  limits.policy = SchedulingPolicy::kFcfs;
  BlockPool pool(16);
  PrefixIndex index(pool, limits.block_size, limits.groups);
  Scheduler scheduler(limits, pool, &index);
  ScheduledSequence held, other, follower;
  for (ScheduledSequence* sequence : {&held, &other, &follower}) {
    sequence->tokens.assign(8, 1);
    sequence->num_prompt_tokens = 8;
    sequence->max_total_tokens = 16;
  }
  other.tokens[0] = 2;
  follower.leader = &held;
  for (ScheduledSequence* sequence : {&held, &other, &follower}) scheduler.Add(*sequence);
  // Both prompts fit the step; the first sequence's token cannot be chosen in it.
  const StepPlan first = scheduler.Plan();
  ASSERT_EQ(first.slices.size(), 2u);
  scheduler.CommitAllButLast(first.slices[0]);
  held.is_held = true;
  scheduler.Commit(first.slices[1]);
  other.tokens.push_back(1);
  EXPECT_EQ(held.num_computed, 7);
  EXPECT_TRUE(scheduler.CheckInvariant());
  for (int step = 0; step < 3; ++step) {
    for (const PlannedSlice& slice : scheduler.Plan().slices) {
      EXPECT_NE(slice.sequence, &held);
    }
    scheduler.Commit();
    other.tokens.push_back(1);
    if (step == 0) {
      EXPECT_EQ(follower.state, ScheduledSequence::State::kRunning) << "it waits for nobody";
      scheduler.Remove(follower);
    }
    EXPECT_TRUE(scheduler.CheckInvariant());
  }
  held.is_held = false;
  const StepPlan& last = scheduler.Plan();
  ASSERT_EQ(last.slices.size(), 2u);
  EXPECT_EQ(last.slices[0].sequence, &held);
  EXPECT_EQ(last.slices[0].first, 7);
  EXPECT_EQ(last.slices[0].num_tokens, 1);
  EXPECT_TRUE(last.slices[0].samples);
  scheduler.Commit();
  EXPECT_EQ(held.num_computed, 8);
  held.tokens.push_back(3);
  scheduler.Remove(held);
  scheduler.Remove(other);
  EXPECT_EQ(pool.num_held(), 0);
}

// Runs a client's prompt of tokens first, first + 1, ... to its end; returns the number of prompt
// tokens found in the cache.
int64_t CachedTokens(Scheduler& scheduler, uint64_t client, int32_t first, int64_t length) {
  FairSequence sequence;
  for (int64_t i = 0; i < length; ++i) sequence.tokens.push_back(first + static_cast<int32_t>(i));
  sequence.num_prompt_tokens = length;
  sequence.max_total_tokens = length + 1;
  sequence.client = client;
  scheduler.Add(sequence);
  int64_t cached = -1;
  while (sequence.num_computed < length) {
    for (const PlannedSlice& slice : scheduler.Plan().slices) {
      if (cached < 0) cached = slice.first;
    }
    scheduler.Commit();
  }
  scheduler.Remove(sequence);
  return cached;
}

TEST(FairScheduler, AFloodLeavesOthersTheirCachedPrefixes) {
  const auto found_after_flood = [](SchedulingPolicy policy) {
    SchedulerLimits limits = FairLimits();
    limits.policy = policy;
    BlockPool pool(64);
    PrefixIndex index(pool, limits.block_size);
    Scheduler scheduler(limits, pool, &index);
    EXPECT_EQ(CachedTokens(scheduler, 1, 0, 49), 0);
    for (int32_t i = 1; i <= 50; ++i) EXPECT_EQ(CachedTokens(scheduler, 2, 1000 * i, 33), 0);
    const Status status = scheduler.CheckInvariant();
    EXPECT_TRUE(status) << status.error().message;
    return CachedTokens(scheduler, 1, 0, 49);
  };
  EXPECT_EQ(found_after_flood(SchedulingPolicy::kFair), 48);
  EXPECT_EQ(found_after_flood(SchedulingPolicy::kFcfs), 0) << "all clients are one";
}

}  // namespace
}  // namespace sluice
