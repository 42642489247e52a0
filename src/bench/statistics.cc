#include "bench/statistics.h"

#include <algorithm>
#include <cmath>

#include "bench/stream_chunk.h"

namespace sluice::bench {
namespace {

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

// Events and running requests in each second since the first request.
void FindPeaks(const LoadResult& result, Metrics& metrics) {
  double first = 0, last = 0;
  bool any = false;
  for (const RequestRecord& record : result.records) {
    if (!record.success) continue;
    first = any ? std::min(first, record.start) : record.start;
    last = any ? std::max(last, record.start + record.latency) : record.start + record.latency;
    any = true;
  }
  if (!any) return;
  const size_t seconds = static_cast<size_t>(std::ceil(last - first)) + 1;
  std::vector<double> events(seconds, 0);
  std::vector<int64_t> running(seconds, 0);
  const auto second = [&](double time) {
    return std::min(static_cast<size_t>(std::max(time - first, 0.0)), seconds - 1);
  };
  for (const RequestRecord& record : result.records) {
    if (!record.success) continue;
    double time = record.start + record.ttft;
    events[second(time)] += 1;
    for (double gap : record.gaps) {
      time += gap;
      events[second(time)] += 1;
    }
    for (size_t s = second(record.start); s <= second(record.start + record.latency); ++s)
      ++running[s];
  }
  metrics.max_output_tokens_per_s = *std::max_element(events.begin(), events.end());
  metrics.max_concurrent_requests = *std::max_element(running.begin(), running.end());
}

}  // namespace

std::string_view MetricName(Metric metric) {
  switch (metric) {
    case Metric::kTtft: return "ttft";
    case Metric::kTpot: return "tpot";
    case Metric::kItl: return "itl";
    case Metric::kE2el: return "e2el";
  }
  return "";
}

const Summary& Metrics::of(Metric metric) const {
  switch (metric) {
    case Metric::kTtft: return ttft;
    case Metric::kTpot: return tpot;
    case Metric::kItl: return itl;
    case Metric::kE2el: break;
  }
  return e2el;
}

double Percentile(const std::vector<double>& sorted, double percent) {
  if (sorted.empty()) return 0;
  const double place = percent / 100 * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(std::floor(place));
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (place - static_cast<double>(low));
}

Summary Summarize(std::vector<double> seconds, const std::vector<double>& percentiles) {
  std::sort(seconds.begin(), seconds.end());
  Summary summary;
  summary.mean = 1e3 * Mean(seconds);
  summary.median = 1e3 * Percentile(seconds, 50);
  double squares = 0;
  for (double value : seconds) {
    const double off = value - summary.mean / 1e3;
    squares += off * off;
  }
  if (!seconds.empty())
    summary.deviation = 1e3 * std::sqrt(squares / static_cast<double>(seconds.size()));
  for (double percent : percentiles)
    summary.percentiles.push_back(1e3 * Percentile(seconds, percent));
  return summary;
}

Metrics ComputeMetrics(const LoadResult& result, const std::vector<double>& percentiles,
                       const Goodput& goodput,
                       const std::function<int64_t(const std::string&)>& count_tokens) {
  Metrics metrics;
  metrics.duration = result.duration;
  std::vector<double> ttfts, tpots, itls, e2els, user;
  int64_t good = 0;
  for (const RequestRecord& record : result.records) {
    if (!record.ended || !record.success) {
      if (record.ended) ++metrics.failed;
      metrics.output_lens.push_back(0);
      continue;
    }
    int64_t tokens = record.output_tokens.value_or(0);
    if (tokens == 0) tokens = count_tokens(record.text);
    metrics.output_lens.push_back(tokens);
    metrics.total_input += record.prompt_tokens;
    metrics.total_output += tokens;
    double tpot = 0;
    if (tokens > 1) {
      tpot = (record.latency - record.ttft) / static_cast<double>(tokens - 1);
      tpots.push_back(tpot);
    }
    itls.insert(itls.end(), record.gaps.begin(), record.gaps.end());
    ttfts.push_back(record.ttft);
    e2els.push_back(record.latency);
    if (record.latency > 0) user.push_back(static_cast<double>(tokens) / record.latency);
    ++metrics.completed;
    const auto keeps = [](const std::optional<double>& bound, double seconds) {
      return !bound || seconds <= *bound / 1e3;
    };
    if (keeps(goodput.ttft, record.ttft) && keeps(goodput.tpot, tpot) &&
        keeps(goodput.e2el, record.latency)) {
      ++good;
    }
  }
  if (result.duration > 0) {
    metrics.request_throughput = static_cast<double>(metrics.completed) / result.duration;
    metrics.output_throughput = static_cast<double>(metrics.total_output) / result.duration;
    metrics.total_token_throughput =
        static_cast<double>(metrics.total_input + metrics.total_output) / result.duration;
    if (goodput.any()) metrics.request_goodput = static_cast<double>(good) / result.duration;
  }
  metrics.user_throughput = Mean(user);
  metrics.ttft = Summarize(std::move(ttfts), percentiles);
  metrics.tpot = Summarize(std::move(tpots), percentiles);
  metrics.itl = Summarize(std::move(itls), percentiles);
  metrics.e2el = Summarize(std::move(e2els), percentiles);
  FindPeaks(result, metrics);
  return metrics;
}

}  // namespace sluice::bench
