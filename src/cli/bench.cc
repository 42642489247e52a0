#include <algorithm>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "bench/statistics.h"
#include "cli/bench_report.h"
#include "cli/bench_run.h"
#include "cli/command.h"
#include "cli/limits.h"
#include "cli/write_file.h"

namespace sluice::cli {
namespace {

constexpr int kPercentages[] = {10, 25, 50, 75, 90, 99};

// The numbers of runs and prompts.
struct Plan {
  int64_t num_prompts = 0, repetitions = 0;
  int64_t warmups = 0, warmup_prompts = 0;
};

// Prints the operator times of --profile-ops, including those of the warm-up.
void PrintOpTimes(const options::Settings& settings, const EngineInfo& info) {
  if (info.op_times == nullptr || settings.Flag("json")) return;
  for (const std::string& line : OpTimeLines(info.op_times->All(), {})) fmt::print("{}\n", line);
}

Result<BenchReport> RunBench(const options::Settings& settings, const Plan& plan) {
  const int64_t input_len = *settings.Integer("input-len");
  const int64_t output_len = *settings.Integer("output-len");
  ASSIGN_OR_RETURN(const auto bench,
                   BenchEngine::Load(settings, plan.num_prompts, input_len + output_len));
  std::optional<MachineLimits> limits;
  if (settings.Flag("limits")) limits = MeasureLimits(bench->info().num_threads);
  BenchReport report = MakeReport(bench->info(), limits, plan.num_prompts, input_len, output_len);
  if (plan.warmups > 0 && settings.dialect() == options::Dialect::kVllm) {
    fmt::print("Warming up...\n");
    std::fflush(stdout);
  }
  for (int64_t i = 0; i < plan.warmups; ++i) {
    RETURN_IF_ERROR(bench->Run(plan.warmup_prompts, input_len, output_len));
  }
  for (int64_t i = 0; i < plan.repetitions; ++i) {
    ASSIGN_OR_RETURN(BatchResult run, bench->Run(plan.num_prompts, input_len, output_len));
    report.runs.push_back(std::move(run));
  }
  PrintOpTimes(settings, bench->info());
  return report;
}

Status WriteJson(const options::Settings& settings, const json::Value& value) {
  const std::string path = settings.TextOr("output-json");
  if (path.empty()) return {};
  return WriteResultFile("output-json", path, json::Write(value) + "\n");
}

// Prints Sluice's own report, unless the program runs under another name.
void PrintReport(const options::Settings& settings, const BenchReport& report) {
  if (settings.Flag("json")) {
    fmt::print("{}\n", json::Write(report.Json()));
  } else if (settings.dialect() == options::Dialect::kSluice) {
    fmt::print("{}", report.Text());
  }
}

std::string ModelWord(const options::Settings& settings) {
  return settings.positionals().empty() ? settings.TextOr("model") : settings.positionals()[0];
}

}  // namespace

Result<int> RunBenchLatency(const options::Settings& settings) {
  const int64_t batch = *settings.Integer("batch-size");
  ASSIGN_OR_RETURN(const BenchReport report,
                   RunBench(settings, {.num_prompts = batch,
                                       .repetitions = *settings.Integer("num-iters"),
                                       .warmups = *settings.Integer("num-iters-warmup"),
                                       .warmup_prompts = batch}));
  std::vector<double> seconds;
  double sum = 0;
  json::Value::Array latencies;
  for (const BatchResult& run : report.runs) {
    seconds.push_back(run.seconds);
    latencies.emplace_back(run.seconds);
    sum += run.seconds;
  }
  std::sort(seconds.begin(), seconds.end());
  const double average = sum / static_cast<double>(seconds.size());
  json::Value percentiles{json::Value::Object{}};
  std::string lines = fmt::format("Avg latency: {} seconds\n", average);
  for (int percent : kPercentages) {
    const double value = bench::Percentile(seconds, percent);
    lines += fmt::format("{}% percentile latency: {} seconds\n", percent, value);
    percentiles.Set(std::to_string(percent), value);
  }
  PrintReport(settings, report);
  if (!settings.Flag("json")) fmt::print("{}", lines);
  RETURN_IF_ERROR(WriteJson(
      settings, json::Value(json::Value::Object{{"model_id", ModelWord(settings)},
                                                {"avg_latency", average},
                                                {"latencies", json::Value(std::move(latencies))},
                                                {"percentiles", std::move(percentiles)}})));
  return 0;
}

Result<int> RunBenchThroughput(const options::Settings& settings) {
  const int64_t warmups = *settings.Integer("local-num-warmups");
  ASSIGN_OR_RETURN(const BenchReport report,
                   RunBench(settings, {.num_prompts = *settings.Integer("num-prompts"),
                                       .repetitions = 1,
                                       .warmups = warmups > 0 ? 1 : 0,
                                       .warmup_prompts = warmups}));
  const BatchResult& run = report.runs[0];
  const auto prompts = static_cast<double>(report.num_prompts);
  const int64_t total = run.prompt_tokens + run.generated_tokens;
  PrintReport(settings, report);
  if (!settings.Flag("json")) {
    fmt::print(
        "Throughput: {:.2f} requests/s, {:.2f} total tokens/s, {:.2f} output tokens/s\n"
        "Total num prompt tokens:  {}\nTotal num output tokens:  {}\n",
        prompts / run.seconds, static_cast<double>(total) / run.seconds,
        static_cast<double>(run.generated_tokens) / run.seconds, run.prompt_tokens,
        run.generated_tokens);
  }
  RETURN_IF_ERROR(
      WriteJson(settings, json::Value(json::Value::Object{
                              {"elapsed_time", run.seconds},
                              {"num_requests", report.num_prompts},
                              {"total_num_tokens", total},
                              {"requests_per_second", prompts / run.seconds},
                              {"tokens_per_second", static_cast<double>(total) / run.seconds}})));
  return 0;
}

}  // namespace sluice::cli
