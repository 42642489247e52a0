#include "bench/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::bench {
namespace {

using ::testing::ElementsAre;

int64_t CountBytes(const std::string& text) {
  return static_cast<int64_t>(text.size());
}

RequestRecord Record(double start, double ttft, std::vector<double> gaps,
                     std::optional<int64_t> output_tokens) {
  RequestRecord record;
  record.ended = record.success = true;
  record.start = start;
  record.ttft = ttft;
  record.latency = ttft;
  for (double gap : gaps) record.latency += gap;
  record.gaps = std::move(gaps);
  record.prompt_tokens = 10;
  record.output_tokens = output_tokens;
  return record;
}

// Two answers of three and one tokens, one failure, one request cut off by the user.
LoadResult ExampleLoad() {
  LoadResult result;
  result.duration = 4;
  result.records = {Record(100, 0.5, {0.25, 0.75}, 3), Record(101, 0.2, {}, 1), {}, {}};
  result.records[2].ended = true;
  result.records[2].error = "refused";
  return result;
}

TEST(Statistics, CountsAndThroughputs) {
  const Metrics metrics = ComputeMetrics(ExampleLoad(), {99}, {}, CountBytes);
  EXPECT_EQ(metrics.completed, 2);
  EXPECT_EQ(metrics.failed, 1);
  EXPECT_EQ(metrics.total_input, 20);
  EXPECT_EQ(metrics.total_output, 4);
  EXPECT_DOUBLE_EQ(metrics.request_throughput, 0.5);
  EXPECT_DOUBLE_EQ(metrics.output_throughput, 1);
  EXPECT_DOUBLE_EQ(metrics.total_token_throughput, 6);
  EXPECT_DOUBLE_EQ(metrics.user_throughput, (3 / 1.5 + 1 / 0.2) / 2);
  EXPECT_FALSE(metrics.request_goodput.has_value());
  EXPECT_THAT(metrics.output_lens, ElementsAre(3, 1, 0, 0));
}

TEST(Statistics, TimesByTheirDefinitions) {
  const Metrics metrics = ComputeMetrics(ExampleLoad(), {99, 50}, {}, CountBytes);
  EXPECT_DOUBLE_EQ(metrics.ttft.mean, 350);
  EXPECT_DOUBLE_EQ(metrics.ttft.median, 350);
  EXPECT_NEAR(metrics.ttft.deviation, 150, 1e-9);
  EXPECT_NEAR(metrics.ttft.percentiles[0], 497, 1e-9);  // 200 + 0.99 * 300
  EXPECT_NEAR(metrics.ttft.percentiles[1], 350, 1e-9);
  // An answer of one token has no time per further token.
  EXPECT_DOUBLE_EQ(metrics.tpot.mean, 500);
  EXPECT_DOUBLE_EQ(metrics.itl.mean, 500);
  EXPECT_NEAR(metrics.itl.percentiles[0], 745, 1e-9);
  EXPECT_DOUBLE_EQ(metrics.e2el.mean, 850);
}

TEST(Statistics, TokensAreCountedWhereTheServerDoesNot) {
  LoadResult result;
  result.duration = 1;
  result.records = {Record(0, 0.5, {0.5}, std::nullopt)};
  result.records[0].text = "ab\u00e9";
  EXPECT_EQ(ComputeMetrics(result, {99}, {}, CountBytes).total_output, 4);
}

// Events at 0.5, 0.75, 1.5 s and at 1.2 s after the first start; the requests run over the seconds
// 0 to 1 and 1.
TEST(Statistics, PeaksAreCountedInWholeSeconds) {
  const Metrics metrics = ComputeMetrics(ExampleLoad(), {99}, {}, CountBytes);
  EXPECT_DOUBLE_EQ(metrics.max_output_tokens_per_s, 2);
  EXPECT_EQ(metrics.max_concurrent_requests, 2);
}

TEST(Statistics, Goodput) {
  const auto goodput = [](Goodput bounds) {
    return ComputeMetrics(ExampleLoad(), {99}, bounds, CountBytes).request_goodput;
  };
  EXPECT_DOUBLE_EQ(*goodput({.ttft = 500}), 0.5);
  EXPECT_DOUBLE_EQ(*goodput({.ttft = 499}), 0.25);
  EXPECT_DOUBLE_EQ(*goodput({.tpot = 1}), 0.25);  // that of one token counts as 0
  EXPECT_DOUBLE_EQ(*goodput({.ttft = 500, .e2el = 300}), 0.25);
}

TEST(Statistics, OfNothing) {
  const Metrics metrics = ComputeMetrics({}, {99}, {.ttft = 1}, CountBytes);
  EXPECT_EQ(metrics.completed, 0);
  EXPECT_DOUBLE_EQ(metrics.ttft.percentiles[0], 0);
  EXPECT_EQ(metrics.max_concurrent_requests, 0);
}

TEST(Statistics, PercentileInterpolates) {
  EXPECT_NEAR(Percentile({0.1, 0.2, 0.4, 0.8}, 99), 0.788, 1e-12);
  EXPECT_NEAR(Percentile({0.1, 0.2, 0.4, 0.8}, 90), 0.68, 1e-12);
  EXPECT_DOUBLE_EQ(Percentile({3}, 99), 3);
}

}  // namespace
}  // namespace sluice::bench
