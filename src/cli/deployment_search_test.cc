#include "cli/deployment_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/source_path_testing.h"

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;

// Requests of 1000 and 50 tokens, `gap` seconds apart.
DeploymentQuery QueryOf(double gap) {
  DeploymentQuery query;
  query.config.model_folder = SourcePath("tests/data/simulation/llama-70b-fp8");
  for (int i = 0; i < 40; ++i)
    query.requests.push_back({.arrival = gap * i, .input = 1000, .output = 50});
  query.level = {.ttft = 0.5, .tpot = 0.04, .share = 0.9};
  query.devices = {FindDevices("H200")->device, FindDevices("B200")->device};
  return query;
}

TEST(FindDeployments, AreSortedByPrice) {
  DeploymentQuery query = QueryOf(0.5);
  query.prices = {{"B200", 2}, {"H200", 3}};
  auto found = FindDeployments(query);
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->found.size(), 2u);
  EXPECT_EQ(found->found[0].device, "B200");
  EXPECT_EQ(found->found[0].price, 2);
  EXPECT_EQ(found->found[0].num_devices(), 1);
  EXPECT_EQ(found->found[1].device, "H200");
  for (const Deployment& one : found->found) {
    EXPECT_GE(one.share, 0.9);
    EXPECT_LE(one.ttft, 0.5);
    EXPECT_GT(one.kv_tokens, 100'000);
    EXPECT_NEAR(static_cast<double>(one.weight_bytes), 72.65e9, 0.02 * 72.65e9);
  }
  // A device without a price comes last.
  query.prices = {{"H200", 1000}};
  found = FindDeployments(query);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->found.back().device, "B200");
  EXPECT_FALSE(found->found.back().has_price);
}

TEST(FindDeployments, MoreRequestsTakeMoreDevices) {
  const auto few = FindDeployments(QueryOf(0.5)), many = FindDeployments(QueryOf(0.05));
  ASSERT_TRUE(few && many);
  ASSERT_FALSE(many->found.empty());
  EXPECT_GT(many->found[0].num_devices(), few->found[0].num_devices());
}

TEST(FindDeployments, SayWhyADeviceIsLeftOut) {
  DeploymentQuery query = QueryOf(0.5);
  query.devices = {FindDevices("L40S")->device, FindDevices("H200")->device};
  query.most_devices = 1;
  query.level.tpot = 0.01;
  const auto found = FindDeployments(query);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->found.empty());
  ASSERT_EQ(found->notes.size(), 2u);
  EXPECT_THAT(found->notes[0], HasSubstr("L40S with ModelOpt FP8 weights: the weights take"));
  EXPECT_THAT(found->notes[1], HasSubstr("H200 with ModelOpt FP8 weights: too slow"));
  query.requests.clear();
  EXPECT_FALSE(FindDeployments(query));
}

}  // namespace
}  // namespace sluice::cli
