#include "engine/rank_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/shard.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns a topology of `count` nodes with two cores each.
Topology Nodes(int count) {
  Topology topology;
  topology.numa_nodes = count;
  for (int node = 0; node < count; ++node) {
    topology.node_cpus.push_back({2 * node, 2 * node + 1});
    topology.core_cpus.insert(topology.core_cpus.end(), {2 * node, 2 * node + 1});
  }
  topology.logical_cpus = 2 * count;
  return topology;
}

EngineConfig Asked(int tensor_size, int num_stages, bool exact) {
  EngineConfig config;
  config.tensor_parallel_size = tensor_size;
  config.pipeline_parallel_size = num_stages;
  config.exact_ranks = exact;
  return config;
}

std::vector<int> ThreadsOf(const RankPlan& plan) {
  std::vector<int> threads;
  for (const RankThreads& rank : plan.threads) threads.push_back(rank.num_threads);
  return threads;
}

TEST(RankPlanTest, OneRankIsThePlainCase) {
  const auto plan = PlanRanks(EngineConfig(), Nodes(2), 4, "");
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->num_ranks(), 1);
  EXPECT_THAT(ThreadsOf(*plan), ElementsAre(4));
  EXPECT_TRUE(plan->threads[0].cpus.empty()) << "one rank is not pinned";
  EXPECT_EQ(plan->note, "");
}

TEST(RankPlanTest, ACpuHasARankForEachNodeAtMost) {
  const auto one = PlanRanks(Asked(8, 2, false), Nodes(1), 2, "");
  ASSERT_TRUE(one);
  EXPECT_EQ(one->num_ranks(), 1);
  EXPECT_THAT(ThreadsOf(*one), ElementsAre(2));
  EXPECT_TRUE(one->fewer);
  EXPECT_THAT(one->note,
              HasSubstr("tensor_parallel_size 8 and pipeline_parallel_size 2: one rank computes "
                        "with all threads of this machine with 1 NUMA node; answers have the same "
                        "bits"));
  const auto four = PlanRanks(Asked(8, 1, false), Nodes(4), 8, "");
  ASSERT_TRUE(four);
  EXPECT_EQ(four->tensor_size, 4);
  EXPECT_THAT(ThreadsOf(*four), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(four->threads[3].cpus, ElementsAre(6, 7)) << "each rank has the cores of a node";
  EXPECT_THAT(four->note, HasSubstr("4 ranks share each layer"));
  EXPECT_TRUE(four->fewer);
  EXPECT_EQ(PlanRanks(Asked(2, 1, false), Nodes(4), 8, "")->tensor_size, 2);
  EXPECT_FALSE(PlanRanks(Asked(2, 1, false), Nodes(4), 8, "")->fewer);
}

TEST(RankPlanTest, ExactMakesAllThatAreAskedFor) {
  const auto plan = PlanRanks(Asked(3, 2, true), Nodes(1), 4, "");
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->tensor_size, 3);
  EXPECT_EQ(plan->num_stages, 2);
  EXPECT_THAT(ThreadsOf(*plan), ElementsAre(1, 1, 1, 1, 1, 1)) << "one thread each at least";
  EXPECT_EQ(plan->num_threads(), 6);
  EXPECT_TRUE(plan->threads[0].cpus.empty());
  EXPECT_THAT(plan->note, HasSubstr("as requested: 6 ranks with 6 threads"));
  const auto pinned = PlanRanks(Asked(4, 1, true), Nodes(2), 4, "");
  ASSERT_TRUE(pinned);
  EXPECT_THAT(pinned->threads[1].cpus, ElementsAre(0, 1));
  EXPECT_THAT(pinned->threads[2].cpus, ElementsAre(2, 3));
}

TEST(RankPlanTest, EnginesDivideTheThreadsOfEachRank) {
  EngineConfig config = Asked(2, 1, false);
  const auto plan = PlanRanks(config, Nodes(2), 4, "");
  ASSERT_TRUE(plan);
  ASSERT_THAT(ThreadsOf(*plan), ElementsAre(2, 2));
  for (int engine = 0; engine < 2; ++engine) {
    const std::vector<RankThreads> own = ThreadsOfEngine(*plan, engine, 2);
    ASSERT_EQ(own.size(), 2u);
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(own[static_cast<size_t>(rank)].num_threads, 1);
      EXPECT_EQ(own[static_cast<size_t>(rank)].cpus.front(), 2 * rank + engine)
          << "a CPU of its own";
    }
  }
  const auto one = PlanRanks(EngineConfig(), Nodes(1), 2, "");
  const auto threads_of = [&](int engine) {
    return ThreadsOfEngine(*one, engine, 3).front().num_threads;
  };
  EXPECT_THAT((std::vector{threads_of(0), threads_of(1), threads_of(2)}), ElementsAre(1, 1, 1));
  EXPECT_EQ(ThreadsOfEngine(*one, 0, 1).front().num_threads, 2);
}

TEST(RankPlanTest, EachRankHasADevice) {
  const auto plan = PlanRanks(Asked(4, 2, false), Nodes(2), 16, "NVIDIA H100");
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->tensor_size, 4);
  EXPECT_EQ(plan->num_stages, 2);
  EXPECT_THAT(ThreadsOf(*plan), ElementsAre(2, 2, 2, 2, 2, 2, 2, 2));
  EXPECT_TRUE(plan->threads[0].cpus.empty());
  EXPECT_THAT(plan->note, HasSubstr("pipeline_parallel_size 2: 8 devices (NVIDIA H100)"));
}

TEST(RankPlanTest, WhatCannotBeIsRefused) {
  const auto error = [](const EngineConfig& config, const std::string& device) {
    const auto plan = PlanRanks(config, Nodes(1), 2, device);
    return plan ? std::string() : plan.error().message;
  };
  EXPECT_EQ(error(Asked(0, 1, true), ""), "tensor_parallel_size must be at least 1, got 0");
  EXPECT_EQ(error(Asked(1, -1, true), ""), "pipeline_parallel_size must be at least 1, got -1");
  EXPECT_THAT(error(Asked(64, 64, false), "NVIDIA H100"), HasSubstr("make 4096 ranks"));
  EXPECT_THAT(error(Asked(64, 64, true), ""), HasSubstr("make 4096 ranks, expected at most 256"));
  EXPECT_EQ(error(Asked(64, 64, false), ""), "");
}

}  // namespace
}  // namespace sluice
