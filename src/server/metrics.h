// The counters, gauges and histograms of /metrics, in Prometheus' text format, with vLLM's names.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "engine/engine.h"
#include "engine/observer.h"
#include "server/http/http_types.h"
#include "server/request_memory.h"
#include "server/server_config.h"
#include "tracing/span_exporter.h"

namespace sluice {

class MetricsText;

// A distribution over fixed bounds.
class Histogram {
 public:
  Histogram() = default;
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void Observe(double value, uint64_t times = 1);

  const std::vector<double>& bounds() const { return bounds_; }
  // One per bound, then that of values above all bounds.
  const std::vector<uint64_t>& counts() const { return counts_; }
  double sum() const { return sum_; }
  uint64_t count() const { return count_; }

 private:
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;
  double sum_ = 0;
  uint64_t count_ = 0;
};

// Collects the metrics of one server. Thread safety: all methods may be called from any thread;
// each but Text() holds one mutex for well under a microsecond.
class Metrics : public EngineObserver {
 public:
  explicit Metrics(std::shared_ptr<const RequestMemory> memory = nullptr);

  // Reports the exporter's counters. Called before there are other threads.
  void SetExporter(std::shared_ptr<const SpanExporter> exporter) {
    exporter_ = std::move(exporter);
  }

  // Before, only metrics of the process and of HTTP are shown. vllm:cache_config_info shows options
  // from `config`.
  void SetModel(std::string model_name, const EngineInfo& info, const ServerConfig& config = {});

  void OnStep(const StepStats& stats) override;
  void OnFirstToken(double seconds_since_arrival) override;
  void OnInterToken(double seconds) override;
  void OnFinished(const RequestStats& stats) override;

  // `handler`: the route's path, or "none" for requests that match none.
  void OnHttp(const HttpExchangeRecord& record, std::string_view handler);

  // A request was answered 503 because there are too many.
  void OnRejected();
  // POST /sleep and /wake_up.
  void SetSleeping(bool sleeping);

  int64_t num_running() const;
  int64_t num_waiting() const;
  double cache_usage() const;

  // The whole of /metrics. `idle`: nothing runs or waits now, whatever the last step reported
  // (requests that are aborted after it make no further step).
  std::string Text(bool idle) const;

  // trtllm-serve's /metrics: the steps since the last call, at most kMaxIterations of them, as a
  // JSON array; [] unless --enable_iter_perf_stats or its YAML key asked for them.
  std::string TakeIterations();

  // One log line about the interval since the last call, as vLLM words it; "" if nothing happened.
  // Called by one thread at a time.
  std::string ThroughputLine();

 private:
  struct Handler {
    std::map<std::pair<std::string, std::string>, uint64_t> requests;  // by method and status class
    std::map<std::string, Histogram> seconds;                          // by method
    uint64_t count = 0, request_bytes = 0, response_bytes = 0;
  };

  // One step, for TakeIterations().
  struct Iteration {
    int64_t number = 0;
    StepStats stats;
    double unix_seconds = 0;
  };
  static constexpr size_t kMaxIterations = 1000;

  // Those of proposed tokens, where any are.
  void AppendSpeculation(MetricsText& out, const std::string& labels) const REQUIRES(mutex_);
  void AppendCacheConfig(MetricsText& out) const REQUIRES(mutex_);

  const double start_time_;
  const std::shared_ptr<const RequestMemory> memory_;  // may be null
  std::shared_ptr<const SpanExporter> exporter_;       // may be null

  mutable Mutex mutex_;
  std::string model_name_ GUARDED_BY(mutex_);
  bool has_model_ GUARDED_BY(mutex_) = false;
  EngineInfo info_ GUARDED_BY(mutex_);
  ServerConfig config_ GUARDED_BY(mutex_);
  bool sleeping_ GUARDED_BY(mutex_) = false;
  uint64_t rejected_ GUARDED_BY(mutex_) = 0;
  int64_t num_steps_ GUARDED_BY(mutex_) = 0;
  std::deque<Iteration> iterations_ GUARDED_BY(mutex_);

  StepStats last_ GUARDED_BY(mutex_);
  uint64_t prompt_tokens_ GUARDED_BY(mutex_) = 0;
  uint64_t cached_tokens_ GUARDED_BY(mutex_) = 0;
  uint64_t generation_tokens_ GUARDED_BY(mutex_) = 0;
  uint64_t preemptions_ GUARDED_BY(mutex_) = 0;
  uint64_t prefix_queries_ GUARDED_BY(mutex_) = 0;
  uint64_t prefix_hits_ GUARDED_BY(mutex_) = 0;
  uint64_t drafts_ GUARDED_BY(mutex_) = 0;
  uint64_t draft_tokens_ GUARDED_BY(mutex_) = 0;
  // By their place in what was proposed.
  std::array<uint64_t, kMaxSpeculativeTokens> accepted_tokens_ GUARDED_BY(mutex_) = {};
  uint64_t finished_[4] GUARDED_BY(mutex_) = {};
  Histogram first_token_ GUARDED_BY(mutex_);
  Histogram inter_token_ GUARDED_BY(mutex_);
  Histogram per_token_ GUARDED_BY(mutex_);
  Histogram e2e_ GUARDED_BY(mutex_);
  Histogram queue_ GUARDED_BY(mutex_);
  Histogram inference_ GUARDED_BY(mutex_);
  Histogram prefill_ GUARDED_BY(mutex_);
  Histogram decode_ GUARDED_BY(mutex_);
  Histogram prompt_lengths_ GUARDED_BY(mutex_);
  Histogram generation_lengths_ GUARDED_BY(mutex_);
  Histogram max_generation_ GUARDED_BY(mutex_);
  Histogram max_tokens_ GUARDED_BY(mutex_);
  Histogram computed_ GUARDED_BY(mutex_);
  Histogram sequences_ GUARDED_BY(mutex_);
  Histogram iteration_ GUARDED_BY(mutex_);
  Histogram request_preemptions_ GUARDED_BY(mutex_);
  Histogram http_seconds_ GUARDED_BY(mutex_);
  std::map<std::string, Handler, std::less<>> handlers_ GUARDED_BY(mutex_);

  // Of the interval that ThroughputLine() reports; used by its caller alone.
  std::chrono::steady_clock::time_point line_time_ = std::chrono::steady_clock::now();
  uint64_t line_prompt_ = 0, line_generation_ = 0;
  bool line_busy_ = false;
};

}  // namespace sluice
