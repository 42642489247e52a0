// From the options of `bench serve` and `bench sweep` to what the load generator takes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/dataset.h"
#include "bench/load.h"
#include "bench/report.h"
#include "bench/statistics.h"
#include "options/settings.h"
#include "tokenizer/tokenizer.h"

namespace sluice::cli {

struct BenchPlan {
  bench::LoadOptions load;
  bench::DatasetOptions dataset;
  bench::ArrivalOptions arrivals;
  bench::Goodput goodput;
  bench::ReportOptions report;
  std::unique_ptr<Tokenizer> tokenizer;  // null with --skip-tokenizer-init
  int64_t num_warmups = 0;
  int64_t ready_check_seconds = 0;
  bool test_input = false;
  bool profile = false;
  bool progress_bar = true;
};

// Asks the server for its model where none is given, and loads the tokenizer. Of a sweep, number of
// prompts, rate and concurrency are its steps' own. kInvalidArgument and
// kUnsupported name the option, kUnavailable says where the tokenizer was looked for.
Result<BenchPlan> MakeBenchPlan(const options::Settings& settings, bool sweep);

// The figures of one run, and the exit code that goes with them.
struct BenchOutcome {
  bench::LoadResult load;
  bench::Metrics metrics;
  int exit_code = 0;
};

// Runs the load of a plan: a test request and warm-up where asked for, then the load itself with
// its progress. `quiet` leaves out the lines that vLLM prints before its table.
Result<BenchOutcome> RunBenchPlan(const BenchPlan& plan, bool quiet);

}  // namespace sluice::cli
