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
  record.chunks = {{ttft, 1}};
  for (double gap : gaps) record.chunks.push_back({gap, 1});
  for (const Chunk& chunk : record.chunks) record.latency += chunk.gap;
  record.in_flight = record.latency;
  record.prompt_tokens = 10;
  record.output_tokens = output_tokens;
  return record;
}

// An answer of three tokens, one of a single token, a failure, and a request that the user
// interrupted.
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
  // An answer of a single token has no time per further token.
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

// Tokens arrive 0.5, 0.75, 1.5 and 1.2 s after the first start; the requests are in flight from 0
// to 1.5 s and from 1 to 1.2 s.
TEST(Statistics, PeaksAreOfASecondThatBeginsAnywhere) {
  LoadResult load = ExampleLoad();
  Metrics metrics = ComputeMetrics(load, {99}, {}, CountBytes);
  EXPECT_DOUBLE_EQ(metrics.max_output_tokens_per_s, 4);
  EXPECT_EQ(metrics.max_concurrent_requests, 2);
  load.records[1].start = 101.5;  // starts when the other request ends
  metrics = ComputeMetrics(load, {99}, {}, CountBytes);
  EXPECT_DOUBLE_EQ(metrics.max_output_tokens_per_s, 3);
  EXPECT_EQ(metrics.max_concurrent_requests, 1);
}

// Chunks of eight tokens every 16 ms, from four concurrent streams.
TEST(Statistics, TokensOfAChunkShareItsGap) {
  LoadResult load;
  for (int i = 0; i < 40; ++i) {
    std::vector<double> gaps(24, 0.016);
    load.records.push_back(Record(i / 4 * 0.5, 0.1, gaps, 200));
    load.records.back().in_flight = 0.5;
  }
  load.duration = 5;
  for (const bool counted : {false, true}) {
    for (RequestRecord& record : load.records) {
      int64_t total = 0;
      for (Chunk& chunk : record.chunks) chunk.counted = counted ? total += 8 : 0;
    }
    const Metrics metrics = ComputeMetrics(load, {99}, {}, CountBytes);
    EXPECT_NEAR(metrics.itl.mean, 2, 1e-9);
    EXPECT_NEAR(metrics.tpot.mean, 2, 0.1);
    EXPECT_GE(metrics.max_output_tokens_per_s, metrics.output_throughput);
    EXPECT_EQ(metrics.max_concurrent_requests, 4);
  }
}

TEST(Statistics, ChunksHaveAllTokensOfTheAnswer) {
  const auto tokens_of = [](std::vector<Chunk> chunks, int64_t tokens) {
    RequestRecord record;
    record.chunks = std::move(chunks);
    return ChunkTokens(record, tokens);
  };
  EXPECT_THAT(tokens_of({{0, 3}, {0, 0}, {0, 9}}, 3), ElementsAre(1, 1, 1));
  EXPECT_THAT(tokens_of({{0, 0}, {0, 5}, {0, 2}, {0, 0}}, 2), ElementsAre(0, 1, 1, 0))
      << "a role and an end";
  EXPECT_THAT(tokens_of({{0, 10}, {0, 30}, {0, 10}}, 8), ElementsAre(2, 4, 2));
  EXPECT_THAT(tokens_of({{0, 1, 3}, {0, 9, 4}}, 4), ElementsAre(3, 1)) << "as counted";
  EXPECT_THAT(tokens_of({{0, 0}, {0, 0}}, 5), ElementsAre(1, 4));
  EXPECT_THAT(tokens_of({{0, 4}, {0, 4}, {0, 4}, {0, 4}}, 2), ElementsAre(1, 0, 1, 0));
  EXPECT_THAT(tokens_of({}, 5), ElementsAre());
}

TEST(Statistics, Goodput) {
  const auto goodput = [](Goodput bounds) {
    return ComputeMetrics(ExampleLoad(), {99}, bounds, CountBytes).request_goodput;
  };
  EXPECT_DOUBLE_EQ(*goodput({.ttft = 500}), 0.5);
  EXPECT_DOUBLE_EQ(*goodput({.ttft = 499}), 0.25);
  EXPECT_DOUBLE_EQ(*goodput({.tpot = 1}), 0.25);  // an answer of one token counts as 0
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
