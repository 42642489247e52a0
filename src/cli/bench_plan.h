// From the options of `bench serve` and `bench sweep` to those of the load generator.
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
  std::unique_ptr<Tokenizer> tokenizer;  // of this process, if it is here
  // Makes the prompts with `tokenizer` or asks the server; null with --skip-tokenizer-init.
  std::unique_ptr<bench::PromptTokenizer> prompts;
  int64_t num_warmups = 0;
  int64_t ready_check_seconds = 0;
  bool test_input = false;
  bool profile = false;
  bool progress_bar = true;
};

// Asks the server for its model where none is given, and loads the tokenizer. In a sweep each step
// has its own number of prompts, rate and concurrency. Where the model's tokenizer is not on this
// machine, the server's /tokenize is asked. kInvalidArgument and kUnsupported name the option;
// kUnavailable says where the tokenizer was searched for.
Result<BenchPlan> MakeBenchPlan(const options::Settings& settings, bool sweep);

// The results of one run, and its exit code.
struct BenchOutcome {
  bench::LoadResult load;
  bench::Metrics metrics;
  int exit_code = 0;
};

// Runs a plan: a test request and warm-up where asked for, then the load itself with its progress.
// `quiet` omits the lines that vLLM prints before its table.
Result<BenchOutcome> RunBenchPlan(const BenchPlan& plan, bool quiet);

}  // namespace sluice::cli
