// From what the requests of a benchmark did to its figures, by vLLM's definitions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/load.h"

namespace sluice::bench {

enum class Metric { kTtft, kTpot, kItl, kE2el };
inline constexpr Metric kMetrics[] = {Metric::kTtft, Metric::kTpot, Metric::kItl, Metric::kE2el};
std::string_view MetricName(Metric metric);  // "ttft"

// A distribution of durations in milliseconds.
struct Summary {
  double mean = 0, median = 0, deviation = 0;
  std::vector<double> percentiles;  // in the order of those asked for
};

// Bounds in milliseconds that a good request keeps; absent ones hold.
struct Goodput {
  std::optional<double> ttft = std::nullopt, tpot = std::nullopt, e2el = std::nullopt;
  bool any() const { return ttft || tpot || e2el; }
};

struct Metrics {
  int64_t completed = 0, failed = 0;
  int64_t total_input = 0, total_output = 0;
  double duration = 0;
  double request_throughput = 0, output_throughput = 0, total_token_throughput = 0;
  std::optional<double> request_goodput;
  // Most tokens that came within a second, wherever it begins; of a shorter run, its mean.
  double max_output_tokens_per_s = 0;
  int64_t max_concurrent_requests = 0;  // that were in flight at a time
  double user_throughput = 0;           // mean over requests of tokens / latency
  Summary ttft, tpot, itl, e2el;
  std::vector<int64_t> output_lens;  // of each record; 0 of a failed one

  const Summary& of(Metric metric) const;
};

// The tokens of each chunk of an answer of `tokens` tokens: as the server counted them, else
// divided by the length of the texts. Together they are `tokens`.
std::vector<int64_t> ChunkTokens(const RequestRecord& record, int64_t tokens);

// The seconds between successive tokens: for each token of a chunk the time since the chunk before
// it, divided by the number of its tokens. Chunks without a token are left out, and the tokens of
// the first chunk, which came at the time to first token.
std::vector<double> TokenGaps(const RequestRecord& record, int64_t tokens);

// Linear interpolation between the two nearest of the sorted `values`, as numpy.percentile does.
// 0 of no values.
double Percentile(const std::vector<double>& sorted, double percent);
Summary Summarize(std::vector<double> seconds, const std::vector<double>& percentiles);

// `count_tokens`: tokens of a text, for answers of which the server did not count them. Records
// that have not ended are left out.
Metrics ComputeMetrics(const LoadResult& result, const std::vector<double>& percentiles,
                       const Goodput& goodput,
                       const std::function<int64_t(const std::string&)>& count_tokens);

}  // namespace sluice::bench
