#include "bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "bench/stream_chunk.h"

namespace sluice::bench {
namespace {

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

// Tokens that arrived at the same time.
struct Arrived {
  double time = 0;
  int64_t tokens = 0;
};

// Returns the maximum number of tokens within any second.
double PeakTokens(std::vector<Arrived> arrived) {
  std::ranges::sort(arrived, {}, &Arrived::time);
  int64_t sum = 0, most = 0;
  size_t first = 0;
  for (const Arrived& last : arrived) {
    sum += last.tokens;
    for (; last.time - arrived[first].time > 1; ++first) sum -= arrived[first].tokens;
    most = std::max(most, sum);
  }
  return static_cast<double>(most);
}

int64_t MostInFlight(const LoadResult& result) {
  // In the sorted order, ends come before starts at the same time.
  std::vector<std::pair<double, int>> changes;
  for (const RequestRecord& record : result.records) {
    if (!record.ended) continue;
    changes.emplace_back(record.start, 1);
    changes.emplace_back(record.start + record.in_flight, -1);
  }
  std::ranges::sort(changes);
  int64_t running = 0, most = 0;
  for (const auto& [time, change] : changes) most = std::max(most, running += change);
  return most;
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

std::vector<int64_t> ChunkTokens(const RequestRecord& record, int64_t tokens) {
  const std::vector<Chunk>& chunks = record.chunks;
  std::vector<int64_t> counts(chunks.size());
  if (chunks.empty()) return counts;
  if (chunks.back().counted == tokens) {
    int64_t before = 0;
    for (size_t i = 0; i < chunks.size(); ++i) {
      const int64_t counted = std::clamp(chunks[i].counted, before, tokens);
      counts[i] = counted - std::exchange(before, counted);
    }
    return counts;
  }
  // Assigns one token to each chunk or, if there are fewer tokens than chunks, to each chunk with
  // text; the rest in proportion to the lengths of the texts.
  const auto with_text =
      std::ranges::count_if(chunks, [](const Chunk& chunk) { return chunk.bytes > 0; });
  const bool each = std::ssize(chunks) <= tokens;
  const bool each_text = !each && with_text <= tokens;
  int64_t bytes = 0, rest = tokens;
  for (size_t i = 0; i < chunks.size(); ++i) {
    counts[i] = each || (each_text && chunks[i].bytes > 0) ? 1 : 0;
    rest -= counts[i];
    bytes += chunks[i].bytes;
  }
  if (bytes == 0) {
    counts.back() += rest;
    return counts;
  }
  int64_t seen = 0, given = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    seen += chunks[i].bytes;
    const double share = static_cast<double>(seen) / static_cast<double>(bytes);
    const auto due = static_cast<int64_t>(std::llround(share * static_cast<double>(rest)));
    counts[i] += due - std::exchange(given, due);
  }
  return counts;
}

std::vector<double> TokenGaps(const RequestRecord& record, int64_t tokens) {
  const std::vector<int64_t> counts = ChunkTokens(record, tokens);
  std::vector<double> gaps;
  double gap = 0;  // time since the last token
  bool first = true;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (i > 0) gap += record.chunks[i].gap;
    if (counts[i] == 0) continue;
    if (!std::exchange(first, false))
      gaps.insert(gaps.end(), static_cast<size_t>(counts[i]), gap / static_cast<double>(counts[i]));
    gap = 0;
  }
  return gaps;
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
  std::vector<Arrived> arrived;
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
    const std::vector<double> gaps = TokenGaps(record, tokens);
    itls.insert(itls.end(), gaps.begin(), gaps.end());
    const std::vector<int64_t> counts = ChunkTokens(record, tokens);
    double time = record.start;
    for (size_t i = 0; i < counts.size(); ++i)
      arrived.push_back({time += record.chunks[i].gap, counts[i]});
    if (counts.empty()) arrived.push_back({record.start + record.latency, tokens});
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
  metrics.max_output_tokens_per_s = PeakTokens(std::move(arrived));
  if (result.duration < 1) metrics.max_output_tokens_per_s = metrics.output_throughput;
  metrics.max_concurrent_requests = MostInFlight(result);
  return metrics;
}

}  // namespace sluice::bench
