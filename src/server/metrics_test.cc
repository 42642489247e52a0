#include "server/metrics.h"

#include <random>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "checkpoint/checkpoint_testing.h"
#include "server/metrics_text.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

EngineInfo Info() {
  EngineInfo info;
  info.max_model_len = 512;
  info.num_blocks = 10;
  info.block_size = 16;
  info.kv_tokens = 160;
  return info;
}

TEST(HistogramTest, CountsUpToAndIncludingTheBound) {
  Histogram histogram({1, 2, 5});
  for (const double value : {0.5, 1.0, 1.5, 5.0, 6.0}) histogram.Observe(value);
  EXPECT_EQ(histogram.counts(), (std::vector<uint64_t>{2, 1, 1, 1}));
  EXPECT_EQ(histogram.count(), 5u);
  EXPECT_DOUBLE_EQ(histogram.sum(), 14);
}

TEST(MetricsTest, TellsJoulesATokenWhereTheMachineCountsThem) {
  const testing::TemporaryFolder folder;
  const auto count = [&](const char* zone, const char* name, uint64_t microjoules) {
    testing::WriteFile(folder.path() / zone / "name", name);
    testing::WriteFile(folder.path() / zone / "max_energy_range_uj", "100000000");
    testing::WriteFile(folder.path() / zone / "energy_uj", std::to_string(microjoules));
  };
  count("intel-rapl:0", "package-0", 0);
  count("intel-rapl:0:0", "dram", 0);
  count("intel-rapl:1", "package-1", 0);
  Metrics metrics(nullptr, folder.path());
  metrics.SetModel("m", Info());
  count("intel-rapl:0", "package-0", 6000000);
  count("intel-rapl:0:0", "dram", 2000000);
  count("intel-rapl:1", "package-1", 3000000);
  EXPECT_THAT(metrics.Text(true), Not(HasSubstr("\nsluice:energy_joules_per_token ")))
      << "no token yet";
  StepStats step;
  step.generated_tokens = 3;
  metrics.Of(0)->OnStep(step);
  EXPECT_THAT(metrics.Text(true), AllOf(HasSubstr("\nsluice:energy_joules_per_token 3"),
                                        HasSubstr("{domain=\"package-0/dram\"} 2")));
}

TEST(MetricsTest, ShowsVllmsNames) {
  Metrics metrics;
  EXPECT_THAT(metrics.Text(true), Not(HasSubstr("vllm:")));
  metrics.SetModel("a\"b\\c\nd", Info());
  StepStats step;
  step.running = 3;
  step.waiting = 2;
  step.used_blocks = 5;
  step.total_blocks = 10;
  step.prompt_tokens = 12;
  step.new_prompt_tokens = 7;
  step.generated_tokens = 3;
  step.prefix_queries = 20;
  step.prefix_hits = 16;
  metrics.Of(0)->OnStep(step);
  metrics.Of(0)->OnFirstToken(0.03);
  metrics.Of(0)->OnInterToken(0.02);
  RequestStats request;
  request.reason = FinishReason::kLength;
  request.prompt_tokens = 20;
  request.generated_tokens = 4;
  request.sequences = {{FinishReason::kLength, 3}, {FinishReason::kStop, 1}};
  metrics.Of(0)->OnFinished(request);
  const std::string text = metrics.Text(false);
  const std::string labels = R"(engine="0",model_name="a\"b\\c\nd")";
  for (const std::string& line : {
           "vllm:num_requests_running{" + labels + "} 3.0\n",
           "vllm:num_requests_waiting{" + labels + "} 2.0\n",
           "vllm:kv_cache_usage_perc{" + labels + "} 0.5\n",
           "vllm:gpu_cache_usage_perc{" + labels + "} 0.5\n",
           "vllm:prefix_cache_queries_total{" + labels + "} 20.0\n",
           "vllm:gpu_prefix_cache_hits_total{" + labels + "} 16.0\n",
           "vllm:prompt_tokens_total{" + labels + "} 23.0\n",
           "vllm:generation_tokens_total{" + labels + "} 3.0\n",
           "vllm:request_success_total{" + labels + ",finished_reason=\"length\"} 1.0\n",
           "vllm:request_success_total{" + labels + ",finished_reason=\"stop\"} 1.0\n",
           "vllm:request_success_total{" + labels + ",finished_reason=\"abort\"} 0.0\n",
           "vllm:request_generation_tokens_sum{" + labels + "} 4.0\n",
           "vllm:request_max_num_generation_tokens_sum{" + labels + "} 3.0\n",
           "vllm:request_params_n_sum{" + labels + "} 2.0\n",
           "vllm:time_to_first_token_seconds_bucket{" + labels + ",le=\"0.02\"} 0.0\n",
           "vllm:time_to_first_token_seconds_bucket{" + labels + ",le=\"0.04\"} 1.0\n",
           "vllm:time_to_first_token_seconds_bucket{" + labels + ",le=\"+Inf\"} 1.0\n",
           "vllm:request_prompt_tokens_bucket{" + labels + ",le=\"500.0\"} 2.0\n",
           "vllm:iteration_tokens_total_sum{" + labels + "} 15.0\n",
           std::string("# TYPE vllm:inter_token_latency_seconds histogram\n"),
           std::string("vllm:cache_config_info{block_size=\"16\""),
           std::string("process_resident_memory_bytes "),
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, Not(HasSubstr("request_prompt_tokens_bucket{" + labels + ",le=\"1000.0\"}")));
  EXPECT_THAT(metrics.Text(true), HasSubstr("vllm:num_requests_running{" + labels + "} 0.0\n"));
}

// However a sequence ends, it is counted once by every counter of finished sequences.
TEST(MetricsTest, CountsEverySequenceOnceHoweverItEnds) {
  Metrics metrics;
  metrics.SetModel("m", Info());
  std::mt19937 random(7);
  int64_t by_reason[4] = {}, sequences = 0, generated = 0, prompts = 0;
  for (int i = 0; i < 200; ++i) {
    RequestStats request;
    request.prompt_tokens = static_cast<int64_t>(random() % 50) + 1;
    for (uint32_t n = random() % 4 + 1; n > 0; --n) {
      const auto reason = static_cast<FinishReason>(random() % 4);
      request.reason = reason;
      request.sequences.push_back({reason, static_cast<int64_t>(random() % 9), 0});
      ++by_reason[static_cast<int>(reason)];
      ++sequences;
      generated += request.sequences.back().generated_tokens;
      prompts += request.prompt_tokens;
    }
    metrics.Of(0)->OnFinished(request);
  }
  const std::string text = metrics.Text(true);
  const std::string labels = R"({engine="0",model_name="m"})";
  for (const char* name :
       {"request_prompt_tokens", "request_generation_tokens", "request_num_preemptions",
        "request_params_max_tokens", "request_time_per_output_token_seconds",
        "e2e_request_latency_seconds", "request_queue_time_seconds",
        "request_inference_time_seconds", "request_prefill_time_seconds",
        "request_decode_time_seconds", "request_prefill_kv_computed_tokens"}) {
    EXPECT_THAT(text, HasSubstr(fmt::format("vllm:{}_count{} {}.0\n", name, labels, sequences)));
  }
  static constexpr const char* kReasons[] = {"stop", "length", "abort", "error"};
  for (int i = 0; i < 4; ++i) {
    EXPECT_THAT(
        text, HasSubstr(fmt::format("finished_reason=\"{}\"}} {}.0\n", kReasons[i], by_reason[i])));
  }
  const auto sum = [&](const char* name) {
    const std::string line = fmt::format("vllm:{}_sum{} ", name, labels);
    return std::stod(text.substr(text.find(line) + line.size()));
  };
  EXPECT_EQ(sum("request_generation_tokens"), generated);
  EXPECT_EQ(sum("request_prompt_tokens"), prompts);
}

TEST(MetricsTest, TextsOfSeveralModelsBecomeOne) {
  Metrics first, second;
  first.SetModel("first", Info());
  second.SetModel("second", Info());
  first.Of(0)->OnInterToken(0.5);
  const std::string merged = MergeMetrics(
      {"# HELP a A.\n# TYPE a gauge\na 1\n", first.ModelText(true), second.ModelText(true)});
  EXPECT_THAT(merged, HasSubstr("# HELP a A.\n# TYPE a gauge\na 1\n"));
  EXPECT_THAT(merged,
              HasSubstr("vllm:num_requests_running{engine=\"0\",model_name=\"first\"} 0.0\n"
                        "vllm:num_requests_running{engine=\"0\",model_name=\"second\"} 0.0\n"));
  const std::string head = "# TYPE vllm:num_requests_running gauge\n";
  ASSERT_THAT(merged, HasSubstr(head));
  EXPECT_EQ(merged.find(head), merged.rfind(head));
  EXPECT_EQ(Metrics().ModelText(true), "");
}

TEST(MetricsTest, AModelThatIsLoadedAgainGoesOnCounting) {
  Metrics metrics;
  metrics.SetModel("m", Info());
  metrics.Of(0)->OnInterToken(0.5);
  const std::string count =
      "vllm:inter_token_latency_seconds_count{engine=\"0\",model_name=\"m\"} 1.0";
  ASSERT_THAT(metrics.Text(true), HasSubstr(count));
  metrics.SetModel("m", Info());
  EXPECT_THAT(metrics.Text(true), HasSubstr(count));
}

TEST(MetricsTest, CountsHttpByHandler) {
  Metrics metrics;
  HttpExchangeRecord record;
  record.method = "POST";
  record.status = 404;
  record.request_bytes = 10;
  metrics.OnHttp(record, "/v1/completions");
  metrics.OnHttp(record, "/metrics");
  const std::string text = metrics.Text(true);
  EXPECT_THAT(
      text,
      HasSubstr(
          "http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"4xx\"} 1.0\n"));
  EXPECT_THAT(text, HasSubstr("http_request_size_bytes_sum{handler=\"/v1/completions\"} 10.0\n"));
  EXPECT_THAT(text, Not(HasSubstr("handler=\"/metrics\"")));
}

TEST(MetricsTest, ReportsThroughputWhileBusyAndOnceAfter) {
  Metrics metrics;
  metrics.SetModel("m", Info());
  EXPECT_THAT(metrics.ThroughputLines(), IsEmpty());
  StepStats step;
  step.generated_tokens = 5;
  metrics.Of(0)->OnStep(step);
  EXPECT_THAT(metrics.ThroughputLines(), ElementsAre(HasSubstr("Avg generation throughput: ")));
  EXPECT_THAT(metrics.ThroughputLines(),
              ElementsAre(HasSubstr("Avg generation throughput: 0.0 tokens/s")));
  EXPECT_THAT(metrics.ThroughputLines(), IsEmpty());
}

TEST(MetricsTest, TellsTheTimeOfOperatorsWhereItIsCounted) {
  Metrics metrics;
  EngineInfo info = Info();
  const auto times = std::make_shared<OpTimes>();
  times->Of("Embed -> hidden").Add(250'000'000);
  info.op_times = times;
  metrics.SetModel("m", info);
  EXPECT_THAT(metrics.Text(true),
              AllOf(HasSubstr("sluice:operator_seconds_total{model_name=\"m\",operator=\"Embed -> "
                              "hidden\"} 0.25\n"),
                    HasSubstr("sluice:operator_calls_total{model_name=\"m\",operator=\"Embed -> "
                              "hidden\"} 1.0\n")));
  EXPECT_THAT(metrics.ThroughputLines(),
              ElementsAre("operator 100.0 %     0.250 s         1 calls  Embed -> hidden"));
  EXPECT_THAT(metrics.ThroughputLines(), IsEmpty());
  metrics.SetModel("m", Info());
  EXPECT_THAT(metrics.Text(true), Not(HasSubstr("sluice:operator")));
}

TEST(MetricsTest, CountsEachEngineByItself) {
  Metrics metrics;
  EngineInfo info = Info();
  info.num_engines = 2;
  info.first_engine = 4;
  StepStats step;
  step.generated_tokens = 5;
  step.running = 3;
  step.used_blocks = 5;
  step.total_blocks = 10;
  step.held_states = 2;
  step.kept_states = 3;
  step.total_states = 9;
  EngineObserver* const first = metrics.Of(0);
  EngineObserver* const second = metrics.Of(1);
  ServerConfig config;
  metrics.SetModel("m", info, config);
  first->OnStep(step);
  step.running = 1;
  step.used_blocks = 0;
  second->OnStep(step);
  second->OnFirstToken(0.03);
  const std::vector<EngineState> states = {{}, {.is_healthy = false, .reason = "lost"}};
  const std::string text = metrics.Text(false, states);
  for (const char* line : {
           "vllm:num_requests_running{engine=\"4\",model_name=\"m\"} 3.0\n"
           "vllm:num_requests_running{engine=\"5\",model_name=\"m\"} 1.0\n",
           "sluice:state_slots{engine=\"4\",model_name=\"m\",use=\"running\"} 2.0\n"
           "sluice:state_slots{engine=\"4\",model_name=\"m\",use=\"snapshot\"} 3.0\n"
           "sluice:state_slots{engine=\"4\",model_name=\"m\",use=\"free\"} 4.0\n",
           "sluice:engine_healthy{engine=\"4\",model_name=\"m\"} 1.0\n"
           "sluice:engine_healthy{engine=\"5\",model_name=\"m\"} 0.0\n",
           "vllm:time_to_first_token_seconds_count{engine=\"4\",model_name=\"m\"} 0.0\n",
           "vllm:time_to_first_token_seconds_count{engine=\"5\",model_name=\"m\"} 1.0\n",
           "enable_prefix_caching=\"True\",engine=\"5\"",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_EQ(metrics.num_running(), 4);
  EXPECT_EQ(metrics.cache_usage(), 0.25);
  EXPECT_THAT(metrics.ThroughputLines(), ElementsAre(HasSubstr("Engine 004: Avg prompt"),
                                                     HasSubstr("Engine 005: Avg prompt")));
  config.aggregate_engine_logging = true;
  metrics.SetModel("m", info, config);
  first->OnStep(step);
  EXPECT_THAT(metrics.ThroughputLines(),
              ElementsAre(HasSubstr("2 Engines Aggregated: Avg prompt")));
}

TEST(MetricsTest, TellsOfTheCacheAndOfWhatWasTurnedAway) {
  Metrics metrics;
  ServerConfig config;
  config.memory_utilization = 0.9;
  config.enable_prefix_caching = false;
  metrics.SetModel("m", Info(), config);
  metrics.OnRejected();
  const std::string text = metrics.Text(true);
  EXPECT_THAT(text, HasSubstr("enable_prefix_caching=\"False\""));
  EXPECT_THAT(text, HasSubstr("gpu_memory_utilization=\"0.9\""));
  EXPECT_THAT(text, HasSubstr("num_gpu_blocks=\"10\""));
  EXPECT_THAT(
      text,
      HasSubstr("vllm:admission_rejections_total{model_name=\"m\",reason=\"queue_full\"} 1.0"));
}

TEST(MetricsTest, KeepsALimitedNumberOfSteps) {
  Metrics metrics;
  ServerConfig config;
  metrics.SetModel("m", Info(), config);
  metrics.Of(0)->OnStep({});
  EXPECT_EQ(metrics.TakeIterations(), "[]") << "nobody asked for them";
  config.enable_iteration_stats = true;
  metrics.SetModel("m", Info(), config);
  for (int i = 0; i < 1100; ++i) metrics.Of(0)->OnStep({});
  const Result<json::Value> steps = json::Parse(metrics.TakeIterations());
  ASSERT_TRUE(steps);
  ASSERT_EQ(steps->as_array().size(), 1000u);
  EXPECT_EQ(*steps->as_array().back().Find("iter"), json::Value(1101));
  EXPECT_EQ(metrics.TakeIterations(), "[]");
}

}  // namespace
}  // namespace sluice
