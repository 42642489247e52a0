#include "bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/source_path_testing.h"

namespace sluice::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Metrics ExampleMetrics() {
  LoadResult result;
  result.duration = 4;
  RequestRecord record;
  record.ended = record.success = true;
  record.ttft = 0.5;
  record.chunks = {{0.5, 1}, {0.25, 1}};
  record.in_flight = 0.75;
  record.latency = 0.75;
  record.prompt_tokens = 10;
  record.output_tokens = 2;
  result.records = {record};
  return ComputeMetrics(result, {99}, {}, [](const std::string&) { return int64_t{0}; });
}

ReportOptions Options() {
  ReportOptions options;
  options.backend = "vllm";
  options.model = "org/abacus";
  options.num_prompts = 1;
  options.max_concurrency = 8;
  options.date = "20261121-130217";
  return options;
}

TEST(ReportTable, IsVllmsToTheLastSpace) {
  EXPECT_EQ(ReportTable(Options(), ExampleMetrics()),
            "============ Serving Benchmark Result ============\n"
            "Successful requests:                     1         \n"
            "Failed requests:                         0         \n"
            "Maximum request concurrency:             8         \n"
            "Benchmark duration (s):                  4.00      \n"
            "Total input tokens:                      10        \n"
            "Total generated tokens:                  2         \n"
            "Request throughput (req/s):              0.25      \n"
            "Output token throughput (tok/s):         0.50      \n"
            "Peak output token throughput (tok/s):    2.00      \n"
            "Peak concurrent requests:                1.00      \n"
            "Total Token throughput (tok/s):          3.00      \n"
            "---------------Time to First Token----------------\n"
            "Mean TTFT (ms):                          500.00    \n"
            "Median TTFT (ms):                        500.00    \n"
            "P99 TTFT (ms):                           500.00    \n"
            "-----Time per Output Token (excl. 1st token)------\n"
            "Mean TPOT (ms):                          250.00    \n"
            "Median TPOT (ms):                        250.00    \n"
            "P99 TPOT (ms):                           250.00    \n"
            "---------------Inter-token Latency----------------\n"
            "Mean ITL (ms):                           250.00    \n"
            "Median ITL (ms):                         250.00    \n"
            "P99 ITL (ms):                            250.00    \n"
            "----------------End-to-end Latency----------------\n"
            "Mean E2EL (ms):                          750.00    \n"
            "Median E2EL (ms):                        750.00    \n"
            "P99 E2EL (ms):                           750.00    \n"
            "==================================================\n");
}

TEST(ReportTable, LinesThatDependOnOptions) {
  ReportOptions options = Options();
  options.metrics = {Metric::kTtft};
  options.percentiles = {};
  options.max_concurrency.reset();
  options.arrivals.requests_per_second = 2.5;
  Metrics metrics = ExampleMetrics();
  metrics.request_goodput = 0.125;
  const std::string table = ReportTable(options, metrics);
  EXPECT_THAT(table, HasSubstr("Request rate configured (RPS):           2.50      \n"));
  EXPECT_THAT(table, HasSubstr("Request goodput (req/s):                 0.12      \n"));
  EXPECT_THAT(table, Not(HasSubstr("Maximum request concurrency")));
  EXPECT_THAT(table, Not(HasSubstr("TPOT")));
  EXPECT_THAT(table, HasSubstr("Mean E2EL (ms):"));  // shown in every table
}

TEST(ReportTable, OfTensorRtLlm) {
  ReportOptions options = Options();
  options.trtllm = true;
  const std::string table = ReportTable(options, ExampleMetrics());
  EXPECT_THAT(table, HasSubstr("Total Token throughput (tok/s):          3.00      \n"
                               "User throughput (tok/s):                 2.67      \n"));
  EXPECT_THAT(table, HasSubstr("Std Dev TTFT (ms):                       0.00      \n"));
}

TEST(ReportJson, HasEveryKeyOfARecordedRun) {
  ReportOptions options = Options();
  options.detailed = true;
  options.metadata = {{"gpu", "none"}};
  options.arrivals.ramp = ArrivalOptions::Ramp::kLinear;
  LoadResult result;
  result.records.resize(2);
  result.records[0].ended = true;
  Metrics metrics = ComputeMetrics(result, {99}, {}, [](const std::string&) { return int64_t{0}; });
  const json::Value report = ReportJson(options, metrics, result);
  const auto keys = json::Parse(*ReadFile(SourcePath("tests/data/bench/vllm_result_keys.json")));
  ASSERT_TRUE(keys);
  for (const json::Value& key : keys->as_array())
    EXPECT_NE(report.Find(key.as_string()), nullptr) << key.as_string();
  EXPECT_EQ(report.Find("request_rate")->as_string(), "inf");
  EXPECT_EQ(report.Find("gpu")->as_string(), "none");
  // One element for each request that ended.
  for (const char* list : {"ttfts", "itls", "errors", "output_lens", "start_times"})
    EXPECT_EQ(report.Find(list)->as_array().size(), 1u) << list;
  EXPECT_NE(report.Find("rps_change_events"), nullptr);
}

TEST(ReportJson, DetailsOnlyWhereAskedFor) {
  const json::Value report = ReportJson(Options(), ExampleMetrics(), {});
  EXPECT_EQ(report.Find("ttfts"), nullptr);
  EXPECT_EQ(report.Find("max_concurrency")->as_integer(), 8);
  EXPECT_TRUE(report.Find("label")->is_null());
}

TEST(ReportJson, OfTensorRtLlm) {
  ReportOptions options = Options();
  options.trtllm = true;
  options.percentiles = {99.9};
  Metrics metrics = ExampleMetrics();
  const json::Value report = ReportJson(options, metrics, {});
  EXPECT_NE(report.Find("request_goodput:"), nullptr);
  EXPECT_NE(report.Find("user_throughput"), nullptr);
  EXPECT_NE(report.Find("p99.9_itl_ms"), nullptr);
}

TEST(ResultFilename, TellsTheRun) {
  ReportOptions options = Options();
  EXPECT_EQ(ResultFilename(options), "vllm-infqps-concurrency8-abacus-20261121-130217.json");
  options.model = "org/abacus/";
  options.label = "mine";
  options.max_concurrency.reset();
  options.arrivals.requests_per_second = 2;
  EXPECT_EQ(ResultFilename(options), "mine-2.0qps-abacus-20261121-130217.json");
  options.arrivals.ramp = ArrivalOptions::Ramp::kLinear;
  options.arrivals.ramp_start = 1;
  options.arrivals.ramp_end = 9;
  EXPECT_EQ(ResultFilename(options), "mine-ramp-up-linear-1qps-9qps-abacus-20261121-130217.json");
}

}  // namespace
}  // namespace sluice::bench
