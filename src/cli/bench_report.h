// The results of a benchmark, each with the corresponding limit of the machine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/bench_run.h"
#include "cli/limits.h"

namespace sluice::cli {

struct BenchReport {
  std::string shape;               // shape of the model, in one line
  int64_t token_weight_bytes = 0;  // weights that a step of one token reads
  std::optional<MachineLimits> limits;
  int num_threads = 0;
  int64_t num_prompts = 0, input_len = 0, output_len = 0;
  double prefill_flops = 0;  // for one prompt
  std::vector<BatchResult> runs;

  std::string Text() const;
  json::Value Json() const;
};

BenchReport MakeReport(const EngineInfo& info, std::optional<MachineLimits> limits,
                       int64_t num_prompts, int64_t input_len, int64_t output_len);

}  // namespace sluice::cli
