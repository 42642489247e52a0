// Computes a benchmark's figures from the records of its requests, by vLLM's definitions.
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
std::string_view MetricName(Metric metric);  // for example "ttft"

// A distribution of durations in milliseconds.
struct Summary {
  double mean = 0, median = 0, deviation = 0;
  std::vector<double> percentiles;  // in the order in which they were requested
};

// Upper bounds, in milliseconds, for a request that counts as good. Absent bounds are always met.
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
  // Maximum number of tokens within any second; for a shorter run, its mean rate.
  double max_output_tokens_per_s = 0;
  int64_t max_concurrent_requests = 0;  // maximum number of requests in flight
  double user_throughput = 0;           // mean over requests of output tokens / latency
  Summary ttft, tpot, itl, e2el;
  std::vector<int64_t> output_lens;  // number of output tokens of each record; 0 if it failed

  const Summary& of(Metric metric) const;
};

// Returns how many of an answer's `tokens` tokens each chunk contains: as the server counts them,
// else in proportion to the lengths of the texts. Their sum is `tokens`.
std::vector<int64_t> ChunkTokens(const RequestRecord& record, int64_t tokens);

// Returns the seconds between successive tokens. Each token of a chunk gets the time since the
// previous chunk divided by the chunk's number of tokens. Leaves out chunks without tokens, and the
// tokens of the first chunk, which count in the time to first token.
std::vector<double> TokenGaps(const RequestRecord& record, int64_t tokens);

// Interpolates linearly between the two nearest of the sorted `values`, as numpy.percentile does.
// Returns 0 if there are none.
double Percentile(const std::vector<double>& sorted, double percent);
Summary Summarize(std::vector<double> seconds, const std::vector<double>& percentiles);

// Computes all figures. `count_tokens`: returns the number of tokens in a text, for answers whose
// tokens the server did not count. Leaves out records that have not ended.
Metrics ComputeMetrics(const LoadResult& result, const std::vector<double>& percentiles,
                       const Goodput& goodput,
                       const std::function<int64_t(const std::string&)>& count_tokens);

}  // namespace sluice::bench
