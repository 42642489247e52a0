// Converts the options of `bench serve` and `bench sweep` to options of the load generator.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/dataset.h"
#include "bench/load.h"
#include "bench/prompt_tokenizer.h"
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
  std::unique_ptr<Tokenizer> tokenizer;  // the tokenizer in this process, if its files are on this
                                         // machine
  // Creates prompts with `tokenizer` or with the server's tokenizer; null with
  // --skip-tokenizer-init.
  std::unique_ptr<bench::PromptTokenizer> prompts;
  int64_t num_warmups = 0;
  int64_t ready_check_seconds = 0;
  bool test_input = false;
  bool profile = false;
  bool progress_bar = true;
};

// Asks the server for its model if none is given, and loads the tokenizer; if its files are not on
// this machine, uses the server's /tokenize. In a sweep, each step sets its own number of prompts,
// rate and concurrency. kInvalidArgument and kUnsupported name the option; kUnavailable states
// where the tokenizer was searched for.
Result<BenchPlan> MakeBenchPlan(const options::Settings& settings, bool sweep);

// The results of one run, and its exit code.
struct BenchOutcome {
  bench::LoadResult load;
  bench::Metrics metrics;
  int exit_code = 0;
};

// Runs a plan: a test request and warm-up if requested, then the load itself, with progress.
// `quiet` omits the lines that vLLM prints before its table.
Result<BenchOutcome> RunBenchPlan(const BenchPlan& plan, bool quiet);

}  // namespace sluice::cli
