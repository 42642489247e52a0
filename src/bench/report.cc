#include "bench/report.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include <fmt/format.h>

#include "bench/stream_chunk.h"

namespace sluice::bench {
namespace {

constexpr std::pair<Metric, std::pair<std::string_view, std::string_view>> kTitles[] = {
    {Metric::kTtft, {"TTFT", "Time to First Token"}},
    {Metric::kTpot, {"TPOT", "Time per Output Token (excl. 1st token)"}},
    {Metric::kItl, {"ITL", "Inter-token Latency"}},
    {Metric::kE2el, {"E2EL", "End-to-end Latency"}},
};

bool Selected(const ReportOptions& options, Metric metric) {
  return metric == Metric::kE2el ||
         std::find(options.metrics.begin(), options.metrics.end(), metric) != options.metrics.end();
}

class Table {
 public:
  void Rule(std::string_view title, char fill) {
    text_ += fmt::format("{}\n", Centred(title, fill));
  }
  void Count(std::string_view label, int64_t value) {
    text_ += fmt::format("{:<40} {:<10}\n", label, value);
  }
  void Number(std::string_view label, double value) {
    text_ += fmt::format("{:<40} {:<10.2f}\n", label, value);
  }
  std::string text() && { return std::move(text_); }

 private:
  // Like Python's str.center: for an even title, the odd fill character is on the right.
  static std::string Centred(std::string_view title, char fill) {
    constexpr size_t kWidth = 50;
    const size_t room = kWidth - std::min(kWidth, title.size());
    return std::string(room / 2, fill) + std::string(title) + std::string(room - room / 2, fill);
  }
  std::string text_;
};

std::string LocalTime(double wall_seconds) {
  const auto whole = static_cast<time_t>(wall_seconds);
  tm parts{};
  localtime_r(&whole, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     static_cast<int>(1e6 * (wall_seconds - std::floor(wall_seconds))));
}

json::Value Text(const std::string& text) {
  return text.empty() ? json::Value(nullptr) : json::Value(text);
}

json::Value Number(const std::optional<double>& value) {
  return value ? json::Value(*value) : json::Value(nullptr);
}

// Returns a list of get(record) for each record that has ended.
template <typename Get>
json::Value ListOf(const LoadResult& result, const Get& get) {
  json::Value::Array list;
  for (size_t i = 0; i < result.records.size(); ++i) {
    if (result.records[i].ended) list.push_back(json::Value(get(result.records[i], i)));
  }
  return json::Value(std::move(list));
}

void AddDetails(const Metrics& metrics, const LoadResult& result, json::Value& json) {
  using Record = RequestRecord;
  json.Set("input_lens", ListOf(result, [](const Record& r, size_t) { return r.prompt_tokens; }));
  json.Set("output_lens",
           ListOf(result, [&](const Record&, size_t i) { return metrics.output_lens[i]; }));
  json.Set("ttfts", ListOf(result, [](const Record& r, size_t) { return r.ttft; }));
  json.Set("itls", ListOf(result, [&](const Record& r, size_t i) {
             const std::vector<double> gaps = TokenGaps(r, metrics.output_lens[i]);
             return json::Value::Array(gaps.begin(), gaps.end());
           }));
  json.Set("latencies", ListOf(result, [](const Record& r, size_t) { return r.latency; }));
  json.Set("e2els", ListOf(result, [](const Record& r, size_t) { return r.latency; }));
  json.Set("start_times", ListOf(result, [](const Record& r, size_t) { return r.start; }));
  json.Set("queue_times", ListOf(result, [](const Record& r, size_t) { return r.queue_time; }));
  json.Set("generated_texts",
           ListOf(result, [](const Record& r, size_t) { return json::Value(r.text); }));
  json.Set("errors", ListOf(result, [](const Record& r, size_t) { return r.error; }));
}

void AddRate(const ReportOptions& options, json::Value& json) {
  const double rate = options.arrivals.requests_per_second;
  json.Set("request_rate", std::isfinite(rate) ? json::Value(rate) : json::Value("inf"));
  const double burstiness = options.arrivals.burstiness;
  json.Set("burstiness", std::isfinite(burstiness) ? json::Value(burstiness) : json::Value("inf"));
  json.Set("max_concurrency",
           options.max_concurrency ? json::Value(*options.max_concurrency) : json::Value(nullptr));
}

std::string_view RampName(const ReportOptions& options) {
  return options.arrivals.ramp == ArrivalOptions::Ramp::kLinear ? "linear" : "exponential";
}

}  // namespace

std::string PercentWord(double percent) {
  return percent == std::floor(percent) ? fmt::format("{:.0f}", percent)
                                        : fmt::format("{}", percent);
}

std::string RateWord(double rate) {
  if (!std::isfinite(rate)) return "inf";
  std::string word;
  json::AppendDouble(word, rate);
  return word;
}

std::string ReportTable(const ReportOptions& options, const Metrics& metrics) {
  Table table;
  table.Rule(" Serving Benchmark Result ", '=');
  if (options.trtllm) table.Count("Total requests:", options.num_prompts);
  table.Count("Successful requests:", metrics.completed);
  table.Count("Failed requests:", metrics.failed);
  if (options.max_concurrency)
    table.Count("Maximum request concurrency:", *options.max_concurrency);
  if (std::isfinite(options.arrivals.requests_per_second))
    table.Number("Request rate configured (RPS):", options.arrivals.requests_per_second);
  table.Number("Benchmark duration (s):", metrics.duration);
  table.Count("Total input tokens:", metrics.total_input);
  table.Count("Total generated tokens:", metrics.total_output);
  table.Number("Request throughput (req/s):", metrics.request_throughput);
  if (metrics.request_goodput) table.Number("Request goodput (req/s):", *metrics.request_goodput);
  table.Number("Output token throughput (tok/s):", metrics.output_throughput);
  table.Number("Peak output token throughput (tok/s):", metrics.max_output_tokens_per_s);
  table.Number("Peak concurrent requests:", static_cast<double>(metrics.max_concurrent_requests));
  table.Number("Total Token throughput (tok/s):", metrics.total_token_throughput);
  if (options.trtllm) table.Number("User throughput (tok/s):", metrics.user_throughput);
  for (const auto& [metric, names] : kTitles) {
    if (!Selected(options, metric)) continue;
    const auto& [name, title] = names;
    const Summary& summary = metrics.of(metric);
    table.Rule(title, '-');
    table.Number(fmt::format("Mean {} (ms):", name), summary.mean);
    table.Number(fmt::format("Median {} (ms):", name), summary.median);
    if (options.trtllm) table.Number(fmt::format("Std Dev {} (ms):", name), summary.deviation);
    for (size_t i = 0; i < options.percentiles.size(); ++i) {
      table.Number(fmt::format("P{} {} (ms):", PercentWord(options.percentiles[i]), name),
                   summary.percentiles[i]);
    }
  }
  table.Rule("", '=');
  return std::move(table).text();
}

json::Value ReportJson(const ReportOptions& options, const Metrics& metrics,
                       const LoadResult& result) {
  json::Value json{json::Value::Object{}};
  json.Set("date", options.date);
  if (!options.trtllm) json.Set("endpoint_type", options.backend);
  json.Set("backend", options.backend);
  if (!options.trtllm) json.Set("label", options.label ? json::Value(*options.label) : nullptr);
  json.Set("model_id", options.model);
  json.Set("tokenizer_id", Text(options.tokenizer));
  json.Set("num_prompts", options.num_prompts);
  for (const auto& [key, value] : options.metadata) json.Set(key, value);
  if (!options.trtllm) AddRate(options, json);
  if (options.arrivals.ramp != ArrivalOptions::Ramp::kNone) {
    json.Set("ramp_up_strategy", RampName(options));
    json.Set("ramp_up_start_rps", static_cast<int64_t>(options.arrivals.ramp_start));
    json.Set("ramp_up_end_rps", static_cast<int64_t>(options.arrivals.ramp_end));
  }
  json.Set("duration", metrics.duration);
  json.Set("completed", metrics.completed);
  json.Set("failed", metrics.failed);
  json.Set("total_input_tokens", metrics.total_input);
  json.Set("total_output_tokens", metrics.total_output);
  json.Set("request_throughput", metrics.request_throughput);
  // TensorRT-LLM's key really ends with a colon.
  json.Set(options.trtllm ? "request_goodput:" : "request_goodput",
           Number(metrics.request_goodput));
  json.Set("output_throughput", metrics.output_throughput);
  json.Set("total_token_throughput", metrics.total_token_throughput);
  json.Set("user_throughput", metrics.user_throughput);
  if (options.detailed) AddDetails(metrics, result, json);
  json.Set("max_output_tokens_per_s", metrics.max_output_tokens_per_s);
  json.Set("max_concurrent_requests", metrics.max_concurrent_requests);
  json.Set("rtfx", 0.0);  // only meaningful for audio
  if (result.interrupted) json.Set("interrupted", true);
  if (options.arrivals.ramp != ArrivalOptions::Ramp::kNone) {
    json::Value::Array events;
    for (const RateChange& change : result.rate_changes) {
      events.push_back(json::Value(json::Value::Object{
          {"rps", change.rate}, {"timestamp", LocalTime(change.wall_seconds)}}));
    }
    json.Set("rps_change_events", json::Value(std::move(events)));
  }
  for (Metric metric : kMetrics) {
    if (!Selected(options, metric)) continue;
    const std::string name(MetricName(metric));
    const Summary& summary = metrics.of(metric);
    json.Set("mean_" + name + "_ms", summary.mean);
    json.Set("median_" + name + "_ms", summary.median);
    json.Set("std_" + name + "_ms", summary.deviation);
    for (size_t i = 0; i < options.percentiles.size(); ++i) {
      json.Set(fmt::format("p{}_{}_ms", PercentWord(options.percentiles[i]), name),
               summary.percentiles[i]);
    }
  }
  if (options.trtllm) AddRate(options, json);
  return json;
}

std::string ResultFilename(const ReportOptions& options) {
  std::string model = options.model;
  while (model.ends_with('/')) model.pop_back();
  model = model.substr(model.rfind('/') + 1);
  const std::string concurrency =
      options.max_concurrency ? fmt::format("-concurrency{}", *options.max_concurrency) : "";
  const std::string rate =
      options.arrivals.ramp == ArrivalOptions::Ramp::kNone
          ? RateWord(options.arrivals.requests_per_second) + "qps"
          : fmt::format("ramp-up-{}-{}qps-{}qps", RampName(options), options.arrivals.ramp_start,
                        options.arrivals.ramp_end);
  return fmt::format("{}-{}{}-{}-{}.json", options.label.value_or(options.backend), rate,
                     concurrency, model, options.date);
}

}  // namespace sluice::bench
