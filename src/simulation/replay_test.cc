#include "simulation/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simulation/measurements.h"
#include "simulation/trace.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

// A step takes 1 ms. A request takes 5 ms before its first step.
StepClock MillisecondSteps() {
  DeviceProfile device = FindDevices("H200")->device;
  device.factors = {};
  device.factors[static_cast<size_t>(StepPart::kSteps)] = 1e-3;
  device.factors[static_cast<size_t>(StepPart::kRequest)] = 5e-3;
  StepCosts costs;
  costs.stages.emplace_back();
  return {device, costs};
}

ReplayOptions SmallEngine(int64_t num_blocks = 1000) {
  ReplayOptions options;
  options.limits.block_size = 16;
  options.limits.max_num_batched_tokens = 64;
  options.limits.max_num_seqs = 4;
  options.limits.max_prompt_logit_rows = 1;
  options.limits.chunked_prefill = true;
  options.num_blocks = num_blocks;
  return options;
}

TEST(Replay, ARequestTakesItsSteps) {
  const std::vector<ReplayRequest> requests = {{.arrival = 2, .input = 100, .output = 11}};
  const auto result = Replay(MillisecondSteps(), SmallEngine(), requests);
  ASSERT_TRUE(result) << result.error().message;
  // Two steps compute the 100 prompt tokens, and the second one samples a token. Ten more steps
  // follow.
  EXPECT_EQ(result->num_steps, 12);
  EXPECT_NEAR(result->requests[0].ttft, 7e-3, 1e-9);
  EXPECT_NEAR(result->requests[0].tpot, 1e-3, 1e-9);
  EXPECT_NEAR(result->requests[0].latency, 17e-3, 1e-9);
  EXPECT_NEAR(result->seconds, 12e-3, 1e-9);
  EXPECT_EQ(result->output_tokens, 11);
  EXPECT_NEAR(result->requests[0].ttft_parts[static_cast<size_t>(StepPart::kSteps)], 2, 1e-9);
  EXPECT_NEAR(result->requests[0].tpot_parts[static_cast<size_t>(StepPart::kSteps)], 1, 1e-9);
}

TEST(Replay, TimePassesBetweenArrivals) {
  const std::vector<ReplayRequest> requests = {{.arrival = 0, .input = 10, .output = 2},
                                               {.arrival = 100, .input = 10, .output = 2}};
  const auto result = Replay(MillisecondSteps(), SmallEngine(), requests);
  ASSERT_TRUE(result);
  EXPECT_NEAR(result->seconds, 100.002, 1e-9);
  EXPECT_NEAR(result->requests[1].ttft, 6e-3, 1e-9);
}

TEST(Replay, AClosedLoopKeepsItsConcurrency) {
  ReplayOptions options = SmallEngine();
  options.concurrency = 2;
  const std::vector<ReplayRequest> requests(6, {.input = 10, .output = 5});
  const auto result = Replay(MillisecondSteps(), options, requests);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->num_steps, 15);  // three rounds of five
}

TEST(Replay, EqualHashesShareAPrefix) {
  const std::vector<ReplayRequest> requests = {
      {.arrival = 0, .input = 600, .output = 2, .hash_ids = {1, 2}},
      {.arrival = 10, .input = 600, .output = 2, .hash_ids = {1, 3}}};
  const auto result = Replay(MillisecondSteps(), SmallEngine(), requests);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->cached_tokens, 512);
  EXPECT_LT(result->requests[1].ttft, result->requests[0].ttft);
}

TEST(Replay, EndsWhenTheLevelIsLost) {
  ReplayOptions options = SmallEngine();
  options.level = ServiceLevel{.ttft = 1e-4, .share = 0.5};
  const std::vector<ReplayRequest> requests(100, {.input = 10, .output = 50});
  const auto result = Replay(MillisecondSteps(), options, requests);
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->was_ended);
  EXPECT_LT(result->output_tokens, 100 * 50);
}

TEST(Replay, NamesARequestThatNeverFits) {
  const std::vector<ReplayRequest> requests = {{.input = 100, .output = 100}};
  const auto result = Replay(MillisecondSteps(), SmallEngine(/*num_blocks=*/10), requests);
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, HasSubstr("200 tokens takes 13 blocks"));
  const std::vector<ReplayRequest> empty = {{.input = 0, .output = 1}};
  EXPECT_FALSE(Replay(MillisecondSteps(), SmallEngine(), empty));
}

TEST(ReadTrace, ReadsMooncakesLines) {
  const auto trace = ReadTrace(
      "{\"timestamp\": 1000, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [4, 5]}\n"
      "\n{\"timestamp\": 3500, \"input_length\": 10, \"output_length\": 1}\n",
      "t.jsonl", 100);
  ASSERT_TRUE(trace) << trace.error().message;
  ASSERT_EQ(trace->size(), 2u);
  EXPECT_EQ((*trace)[0].arrival, 0);
  EXPECT_EQ((*trace)[1].arrival, 2.5);
  EXPECT_EQ((*trace)[0].hash_ids, (std::vector<int64_t>{4, 5}));
}

TEST(ReadTrace, NamesTheLineAndTheField) {
  const auto message = [](const std::string& text) {
    const auto trace = ReadTrace(text, "t", 100);
    return trace ? std::string("accepted") : trace.error().message;
  };
  EXPECT_THAT(message(""), HasSubstr("no requests"));
  EXPECT_THAT(message("[1]\n"), HasSubstr("t:1: expected a JSON object"));
  EXPECT_THAT(message("{\"timestamp\": 1}"), HasSubstr("t:1: input_length"));
  EXPECT_THAT(message("{\"timestamp\": 1, \"input_length\": -1, \"output_length\": 1}"),
              HasSubstr("input_length"));
  EXPECT_THAT(message("{\"timestamp\": 9, \"input_length\": 1, \"output_length\": 1}\n"
                      "{\"timestamp\": 8, \"input_length\": 1, \"output_length\": 1}"),
              HasSubstr("t:2: timestamp 8 is before"));
}

TEST(SetRate, IntervalsHaveTheMean) {
  std::vector<ReplayRequest> requests(4000, {.input = 1, .output = 1});
  SetRate(20, requests);
  EXPECT_EQ(requests.front().arrival, 0);
  EXPECT_NEAR(requests.back().arrival, 200, 10);
}

TEST(MeasurementOf, ReadsAResultOfBenchServe) {
  const auto row = MeasurementOf(
      *json::Parse(R"({"completed": 10, "total_input_tokens": 1000, "total_output_tokens": 500,
                       "max_concurrency": 4, "mean_ttft_ms": 50.0, "mean_tpot_ms": 10.0})"),
      "r.json");
  ASSERT_TRUE(row) << row.error().message;
  EXPECT_EQ(row->input, 100);
  EXPECT_EQ(row->output, 50);
  EXPECT_EQ(row->num_requests, 10);
  EXPECT_EQ(row->tpot, 0.01);
  const auto missing = MeasurementOf(*json::Parse(R"({"completed": 10})"), "r.json");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr("r.json: total_input_tokens"));
}

}  // namespace
}  // namespace sluice
