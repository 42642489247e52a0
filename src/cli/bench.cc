#include <fmt/format.h>

#include "cli/bench_report.h"
#include "cli/bench_run.h"
#include "cli/command.h"
#include "cli/limits.h"

namespace sluice::cli {
namespace {

Result<int> RunBench(const options::Settings& settings, int64_t count, int64_t repetitions,
                     int64_t warmups) {
  const int64_t input_len = *settings.Integer("input-len");
  const int64_t output_len = *settings.Integer("output-len");
  ASSIGN_OR_RETURN(const auto bench, BenchEngine::Load(settings, count, input_len + output_len));
  std::optional<MachineLimits> limits;
  if (settings.Flag("limits")) limits = MeasureLimits(bench->info().num_threads);
  BenchReport report = MakeReport(bench->info(), limits, count, input_len, output_len);
  for (int64_t i = 0; i < warmups + repetitions; ++i) {
    ASSIGN_OR_RETURN(BatchResult run, bench->Run(count, input_len, output_len));
    if (i >= warmups) report.runs.push_back(std::move(run));
  }
  if (settings.Flag("json")) {
    fmt::print("{}\n", json::Write(report.Json()));
  } else {
    fmt::print("{}", report.Text());
  }
  return 0;
}

}  // namespace

Result<int> RunBenchLatency(const options::Settings& settings) {
  return RunBench(settings, *settings.Integer("batch-size"), *settings.Integer("num-iters"),
                  *settings.Integer("num-iters-warmup"));
}

Result<int> RunBenchThroughput(const options::Settings& settings) {
  return RunBench(settings, *settings.Integer("num-prompts"), 1, 0);
}

}  // namespace sluice::cli
