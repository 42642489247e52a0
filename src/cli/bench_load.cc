#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <fmt/format.h>

#include "cli/bench_plan.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "client/http_client.h"
#include "client/stream_client.h"

namespace sluice::cli {
namespace {

constexpr int kMaxErrorsShown = 10;

// Shows how many requests have ended: on a terminal as a progress bar like Python's tqdm, elsewhere
// as a line for each tenth of a long run.
class LoadProgress {
 public:
  LoadProgress(int64_t total, bool shown)
      : total_(total), shown_(shown), terminal_(isatty(STDERR_FILENO) != 0) {}
  ~LoadProgress() { line_.End(); }

  void Update(int64_t done) {
    if (!shown_) return;
    const double now = MonotonicSeconds();
    const double share = static_cast<double>(done) / static_cast<double>(total_);
    const double seconds = now - start_;
    if (terminal_ ? done < total_ && now - last_ < 0.1
                  : static_cast<int>(share * 10) == tenth_ || seconds < 10) {
      return;
    }
    last_ = now;
    tenth_ = static_cast<int>(share * 10);
    const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
    const std::string figures =
        fmt::format("| {}/{} [{}<{}, {:.2f}it/s]", done, total_, Clock(seconds),
                    rate > 0 ? Clock(static_cast<double>(total_ - done) / rate) : "?", rate);
    // Leaves room for the percentage, the bar's left end, and a free last column.
    const auto room = static_cast<size_t>(std::max(terminal_ ? ErrorColumns() : 80, 0));
    const size_t used = figures.size() + 6;
    const size_t columns = std::min(kColumns, room - std::min(used, room));
    const auto full = static_cast<size_t>(share * static_cast<double>(columns));
    const std::string text = fmt::format("{:3.0f}%|{}{}{}", share * 100, std::string(full, '#'),
                                         std::string(columns - full, ' '), figures);
    if (terminal_) {
      line_.Show(text);
    } else {
      PrintError(text + "\n");
    }
  }

 private:
  static constexpr size_t kColumns = 40;
  static std::string Clock(double seconds) {
    const auto whole = static_cast<int64_t>(seconds);
    return fmt::format("{:02}:{:02}", whole / 60, whole % 60);
  }

  const int64_t total_;
  const bool shown_, terminal_;
  const double start_ = MonotonicSeconds();
  double last_ = 0;
  int tenth_ = 0;
  StatusLine line_;
};

// Sends `count` copies of a request. Returns the first error; "" if all succeed.
Result<std::string> TryRequests(const BenchPlan& plan, const bench::Prompt& prompt, int64_t count,
                                int cancel_fd) {
  const std::vector<bench::Prompt> prompts(static_cast<size_t>(count), prompt);
  const std::vector<bench::Arrival> arrivals(prompts.size());
  ASSIGN_OR_RETURN(const bench::LoadResult result,
                   bench::RunLoad(
                       plan.load, prompts, arrivals, [](int64_t) {}, cancel_fd));
  if (result.interrupted) return Fail(ErrorCode::kCancelled, "interrupted before the load began");
  for (const bench::RequestRecord& record : result.records) {
    if (!record.success) return record.error;
  }
  return std::string();
}

Status CheckReady(const BenchPlan& plan, const bench::Prompt& prompt, int cancel_fd) {
  const double end = MonotonicSeconds() + static_cast<double>(plan.ready_check_seconds);
  if (plan.ready_check_seconds > 0) {
    fmt::print("Waiting for endpoint to become up in {} seconds\n", plan.ready_check_seconds);
    std::fflush(stdout);
  }
  while (true) {
    ASSIGN_OR_RETURN(const std::string error, TryRequests(plan, prompt, 1, cancel_fd));
    if (error.empty()) return {};
    if (MonotonicSeconds() >= end) {
      return Fail(ErrorCode::kUnavailable,
                  fmt::format("Initial test run failed - Please make sure benchmark arguments are "
                              "correctly specified. Error: {}",
                              error));
    }
    const double wait = std::clamp(end - MonotonicSeconds(), 0.0, 5.0);
    pollfd interrupt{cancel_fd, POLLIN, 0};
    if (poll(&interrupt, 1, static_cast<int>(1e3 * wait)) > 0)
      return Fail(ErrorCode::kCancelled, "interrupted before the server was ready");
  }
}

void Profile(const BenchPlan& plan, std::string_view path, int cancel_fd) {
  const HttpClient client(plan.load.url, {plan.load.headers.begin(), plan.load.headers.end()},
                          plan.load.tls);
  const auto response = client.PostStream(
      path, "{}", [](std::string_view) { return true; }, cancel_fd);
  if (!response || response->status != 200) {
    PrintError(fmt::format("warning: {}: {}\n", path,
                           response ? fmt::format("the server answers {}", response->status)
                                    : response.error().message));
  }
}

void PrintTraffic(const BenchPlan& plan) {
  fmt::print("Starting main benchmark run...\n");
  const bench::ArrivalOptions& arrivals = plan.arrivals;
  using Ramp = bench::ArrivalOptions::Ramp;
  if (arrivals.ramp == Ramp::kNone) {
    fmt::print("Traffic request rate: {}\n", bench::RateWord(arrivals.requests_per_second));
  } else {
    fmt::print("Traffic ramp-up strategy: {}.\n",
               arrivals.ramp == Ramp::kLinear ? "linear" : "exponential");
    fmt::print("Will increase RPS from {:.0f} to {:.0f} RPS over the duration of the benchmark.\n",
               arrivals.ramp_start, arrivals.ramp_end);
  }
  fmt::print("Burstiness factor: {} ({})\n", bench::RateWord(arrivals.burstiness),
             arrivals.burstiness == 1 ? "Poisson process" : "Gamma distribution");
  fmt::print("Maximum request concurrency: {}\n",
             plan.load.max_concurrency ? std::to_string(*plan.load.max_concurrency) : "None");
}

void PrintFailures(const bench::LoadResult& result) {
  int shown = 0;
  for (const bench::RequestRecord& record : result.records) {
    if (!record.ended || record.success) continue;
    if (shown == 0)
      fmt::print("Failed requests during benchmark run detected (capping to {}):\n",
                 kMaxErrorsShown);
    if (shown == kMaxErrorsShown) break;
    fmt::print("Error {}: {}\n", shown++, record.error);
  }
}

}  // namespace

Result<BenchOutcome> RunBenchPlan(const BenchPlan& plan, bool quiet) {
  ASSIGN_OR_RETURN(const bench::Dataset data,
                   bench::MakeDatasetWith(plan.dataset, plan.prompts.get()));
  if (!quiet) {
    for (const std::string& note : data.notes) fmt::print("{}\n", note);
    if (plan.load.extra_body.Find("temperature") == nullptr)
      fmt::print("No --temperature: the server's default applies (--temperature=0 is greedy).\n");
    fmt::print("Starting initial single prompt test run...\n");
  }
  const int64_t num_prompts = static_cast<int64_t>(data.prompts.size());
  // After this, an interrupt ends the load instead of the program.
  BlockSignals({SIGINT});
  InterruptDescriptor interrupt;
  if (plan.test_input || plan.ready_check_seconds > 0) {
    RETURN_IF_ERROR(CheckReady(plan, data.prompts[0], interrupt.fd()));
    if (!quiet) fmt::print("Initial test run completed.\n");
  } else if (!quiet) {
    fmt::print("Skipping endpoint ready check.\n");
  }
  if (plan.num_warmups > 0) {
    if (!quiet) fmt::print("Warming up with {} requests...\n", plan.num_warmups);
    std::fflush(stdout);
    ASSIGN_OR_RETURN(const std::string error,
                     TryRequests(plan, data.prompts[0], plan.num_warmups, interrupt.fd()));
    if (!error.empty()) PrintError(fmt::format("warning: a warm-up request failed: {}\n", error));
    if (!quiet) fmt::print("Warmup run completed.\n");
  }
  const auto wanted = static_cast<size_t>(
      plan.load.max_concurrency ? std::min(*plan.load.max_concurrency, num_prompts) : num_prompts);
  if (const size_t most = StreamClient::MaxConnections(); wanted > most) {
    PrintError(
        fmt::format("warning: the system allows this process {} connections at a time, not {}; "
                    "raise `ulimit -n`\n",
                    most, wanted));
  }
  if (!quiet) PrintTraffic(plan);
  std::fflush(stdout);
  if (plan.profile) Profile(plan, "/start_profile", interrupt.fd());

  BenchOutcome outcome;
  {
    LoadProgress progress(num_prompts, plan.progress_bar);
    ASSIGN_OR_RETURN(outcome.load,
                     bench::RunLoad(
                         plan.load, data.prompts, bench::PlanArrivals(plan.arrivals, num_prompts),
                         [&](int64_t done) { progress.Update(done); }, interrupt.fd()));
  }
  if (plan.profile) {
    // The profile is fetched even after an interrupt. A second interrupt cancels the fetch.
    interrupt.Clear();
    Profile(plan, "/stop_profile", interrupt.fd());
  }
  outcome.metrics = bench::ComputeMetrics(
      outcome.load, plan.report.percentiles, plan.goodput, [&](const std::string& text) {
        if (plan.prompts == nullptr) return int64_t{1};
        return static_cast<int64_t>(plan.prompts->Encode(text, false).size());
      });
  PrintFailures(outcome.load);
  if (outcome.load.interrupted) {
    fmt::print("Interrupted: {} of {} requests had ended.\n",
               outcome.metrics.completed + outcome.metrics.failed, num_prompts);
    outcome.exit_code = 130;
  } else if (outcome.metrics.failed > 0 || outcome.metrics.completed == 0) {
    outcome.exit_code = 1;
  }
  return outcome;
}

}  // namespace sluice::cli
