#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "cli/bench_plan.h"
#include "cli/command.h"
#include "cli/write_file.h"

namespace sluice::cli {
namespace {

// Writes one JSON object to the file. With `append` adds it as a line, either completely or not at
// all.
Status WriteResult(const std::filesystem::path& path, const json::Value& result, bool append) {
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  const bool is_there = append && std::filesystem::is_regular_file(path, error);
  const uintmax_t old_size = is_there ? std::filesystem::file_size(path, error) : 0;
  errno = 0;
  std::ofstream file(path, append ? std::ios::app : std::ios::trunc);
  if (old_size > 0) file << '\n';
  file << json::Write(result);
  file.close();
  if (!file) {
    const int number = errno;
    if (is_there) std::filesystem::resize_file(path, old_size, error);
    return tl::unexpected<Error>(WriteFailure("result-filename", path, number));
  }
  return {};
}

}  // namespace

Result<int> RunBenchServe(const options::Settings& settings) {
  ASSIGN_OR_RETURN(BenchPlan plan, MakeBenchPlan(settings, /*sweep=*/false));
  plan.report.arrivals = plan.arrivals;
  plan.report.max_concurrency = plan.load.max_concurrency;
  ASSIGN_OR_RETURN(const BenchOutcome outcome, RunBenchPlan(plan, /*quiet=*/false));
  plan.report.num_prompts = static_cast<int64_t>(outcome.load.records.size());
  fmt::print("{}", bench::ReportTable(plan.report, outcome.metrics));
  std::fflush(stdout);
  if (settings.Flag("save-result") || settings.Flag("append-result")) {
    const std::filesystem::path path =
        std::filesystem::path(settings.TextOr("result-dir")) /
        settings.TextOr("result-filename", bench::ResultFilename(plan.report));
    RETURN_IF_ERROR(WriteResult(path, bench::ReportJson(plan.report, outcome.metrics, outcome.load),
                                settings.Flag("append-result")));
  }
  return outcome.exit_code;
}

}  // namespace sluice::cli
