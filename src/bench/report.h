// Writes the results of a benchmark as a table for people and scripts, and as JSON.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "bench/statistics.h"

namespace sluice::bench {

// The content of a report in addition to the figures.
struct ReportOptions {
  bool trtllm = false;  // whether to use the table and keys of TensorRT-LLM's tool instead of
                        // vLLM's
  std::vector<Metric> metrics = {Metric::kTtft, Metric::kTpot, Metric::kItl, Metric::kE2el};
  std::vector<double> percentiles = {99};
  bool detailed = false;  // JSON: whether to add lists with an element for each request

  std::string backend, model, tokenizer;  // "" is written as null
  std::optional<std::string> label;
  int64_t num_prompts = 0;
  std::vector<std::pair<std::string, std::string>> metadata;
  ArrivalOptions arrivals;
  std::optional<int64_t> max_concurrency;
  std::string date;  // for example "20261121-130217"
};

// The table ends with a newline. It always contains the end-to-end latency.
std::string ReportTable(const ReportOptions& options, const Metrics& metrics);
json::Value ReportJson(const ReportOptions& options, const Metrics& metrics,
                       const LoadResult& result);

// Returns a name like "vllm-infqps-concurrency8-abacus-20261121-130217.json".
std::string ResultFilename(const ReportOptions& options);

// Format numbers as Python prints them: 99 and 99.9 for percentiles, inf and 2.0 for rates.
std::string PercentWord(double percent);
std::string RateWord(double rate);

}  // namespace sluice::bench
