#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "bench/sweep.h"
#include "cli/bench_plan.h"
#include "cli/command.h"
#include "cli/write_file.h"
#include "options/values.h"

namespace sluice::cli {
namespace {

// Returns the items of a list, which may be separate arguments or separated by commas.
std::vector<std::string> Steps(const options::Settings& settings, std::string_view name) {
  std::vector<std::string> steps;
  for (const std::string& word : settings.List(name)) {
    for (std::string_view part : options::Split(word, ',')) {
      if (!part.empty()) steps.emplace_back(part);
    }
  }
  return steps;
}

Result<double> StepValue(const std::string& option, const std::string& word) {
  const auto value = options::ParseNumber(word);
  const bool whole = option == "request-rates" || (value && *value == std::floor(*value));
  if (!value || *value <= 0 || *value > 1e6 || !whole) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--{}: expected numbers above 0 such as 1 2 4 8, found '{}'", option, word),
        option);
  }
  return *value;
}

Status WriteText(const std::filesystem::path& path, const std::string& text) {
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  return WriteResultFile("result-dir", path, text);
}

}  // namespace

Result<int> RunBenchSweep(const options::Settings& settings) {
  std::vector<std::string> steps = Steps(settings, "concurrencies");
  const std::vector<std::string> rates = Steps(settings, "request-rates");
  if (!steps.empty() && !rates.empty()) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "--request-rates: a sweep uses either rates or --concurrencies; give only one of them",
        "request-rates");
  }
  bench::Sweep sweep;
  sweep.of_rates = !rates.empty();
  if (sweep.of_rates) steps = rates;
  if (steps.empty()) steps = {"1", "2", "4", "8", "16", "32", "64", "128", "256"};
  const std::string option = sweep.of_rates ? "request-rates" : "concurrencies";
  std::vector<double> values;
  for (const std::string& word : steps) {
    ASSIGN_OR_RETURN(const double value, StepValue(option, word));
    values.push_back(value);
  }

  ASSIGN_OR_RETURN(BenchPlan plan, MakeBenchPlan(settings, /*sweep=*/true));
  plan.report.percentiles = {99};
  sweep.model = plan.report.model;
  sweep.date = plan.report.date;
  fmt::print("{}", bench::Sweep::TableHead(sweep.of_rates));
  int exit_code = 0;
  std::optional<Error> failed;
  for (size_t i = 0; i < steps.size() && exit_code != 130; ++i) {
    if (sweep.of_rates) {
      plan.arrivals.requests_per_second = values[i];
    } else {
      plan.load.max_concurrency = static_cast<int64_t>(values[i]);
    }
    // Each step of the sweep lasts five rounds of its concurrency, or ten seconds of its rate.
    plan.dataset.num_prompts = settings.Given("bench-num-prompts")
                                   ? *settings.Integer("bench-num-prompts")
                               : sweep.of_rates ? std::max<int64_t>(5, std::llround(10 * values[i]))
                                                : static_cast<int64_t>(5 * values[i]);
    // Each step of the sweep has different prompts, so that the server's prefix cache contains none
    // of them from a previous step.
    plan.dataset.seed = plan.arrivals.seed + i;
    auto outcome = RunBenchPlan(plan, /*quiet=*/true);
    if (!outcome) {
      failed = std::move(outcome).error();
      break;
    }
    sweep.steps.push_back({steps[i], static_cast<int64_t>(outcome->load.records.size()),
                           std::move(outcome->metrics)});
    fmt::print("{}", bench::Sweep::TableLine(sweep.steps.back()));
    std::fflush(stdout);
    exit_code = std::max(exit_code, outcome->exit_code);
  }
  // If a step cannot start, the results of earlier steps are still reported.
  if (failed && sweep.steps.empty()) return tl::unexpected<Error>(*std::move(failed));

  const std::filesystem::path folder = settings.TextOr("result-dir");
  std::string stem = settings.TextOr("result-filename", "sweep-" + sweep.date);
  if (const size_t dot = stem.rfind('.'); dot != std::string::npos && dot > 0) stem.resize(dot);
  const std::pair<const char*, std::string> files[] = {
      {".csv", sweep.Csv()}, {".json", json::Write(sweep.Json())}, {".svg", sweep.Svg()}};
  for (const auto& [ending, text] : files) {
    RETURN_IF_ERROR(WriteText(folder / (stem + ending), text));
    fmt::print("{}\n", (folder / (stem + ending)).string());
  }
  if (failed) return tl::unexpected<Error>(*std::move(failed));
  return exit_code;
}

}  // namespace sluice::cli
