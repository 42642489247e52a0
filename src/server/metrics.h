// The counters, gauges and histograms of /metrics, in Prometheus' text format, with vLLM's names.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "engine/engine.h"
#include "engine/observer.h"
#include "server/energy_meter.h"
#include "server/engine_metrics.h"
#include "server/histogram.h"
#include "server/http/http_types.h"
#include "server/request_memory.h"
#include "server/server_config.h"
#include "tracing/span_exporter.h"

namespace sluice {

// Collects the metrics of one server. Thread safety: all methods may be called from any thread.
// Each except Text() holds one mutex for well under a microsecond.
class Metrics {
 public:
  // `power_folder`: as in EnergyMeter.
  explicit Metrics(std::shared_ptr<const RequestMemory> memory = nullptr,
                   const std::filesystem::path& power_folder = "/sys/class/powercap");

  // Makes Text() show the exporter's counters. Call before other threads start.
  void SetExporter(std::shared_ptr<const SpanExporter> exporter) {
    exporter_ = std::move(exporter);
  }

  // Sets the model. Until then, only metrics of the process and of HTTP are shown.
  // vllm:cache_config_info shows options from `config`. If the same model is loaded again, its
  // counters continue.
  void SetModel(std::string model_name, const EngineInfo& info, const ServerConfig& config = {});

  // Returns the observer of the i-th engine, valid as long as this object. Its label is
  // EngineInfo::first_engine + i. REQUIRES: if SetModel was called, `engine` is less than the
  // model's num_engines, or Of() was already called with it.
  EngineObserver* Of(int engine);

  // `handler`: the route's path, or "none" for requests that match no route.
  void OnHttp(const HttpExchangeRecord& record, std::string_view handler);

  // Counts an image of a request, and whether it was processed already.
  void OnImage(bool is_cached);
  // Counts a request that was answered with 503 because there are too many.
  void OnRejected();
  // Sets whether the model sleeps (POST /sleep, /wake_up) or is unloaded.
  void SetSleeping(bool sleeping);

  int64_t num_running() const;
  int64_t num_waiting() const;
  double cache_usage() const;

  // Returns the whole text of /metrics. `idle`: the engine is idle now; this overrides the last
  // step's report, because aborted requests cause no further step. `adapters`: null if none are
  // served.
  std::string Text(bool idle, std::span<const EngineState> states = {},
                   const Adapters* adapters = nullptr, const CacheEventCounts& cache_events = {},
                   const TierCounts& tiers = {}) const;

  // Returns the part of Text() about the model. Each sample has the model's name, because other
  // models of the server have the same families. "" before SetModel().
  std::string ModelText(bool idle, std::span<const EngineState> states = {},
                        const Adapters* adapters = nullptr) const;

  // Returns trtllm-serve's /metrics: the steps since the last call, at most kMaxIterations of them,
  // as a JSON array. [] unless --enable_iter_perf_stats or its YAML key is set.
  std::string TakeIterations();

  // Returns log lines about the interval since the last call, in vLLM's wording: one for each
  // engine, or one for all with --aggregate-engine-logging; none if nothing happened. With
  // --profile-ops, a line for each operator follows. Called by one thread at a time.
  std::vector<std::string> ThroughputLines();

 private:
  struct Handler {
    std::map<std::pair<std::string, std::string>, uint64_t> requests;  // keyed by method and status
                                                                       // class
    std::map<std::string, Histogram> seconds;                          // keyed by method
    uint64_t count = 0, request_bytes = 0, response_bytes = 0;
  };

  // One step, for TakeIterations().
  struct Iteration {
    int64_t number = 0;
    StepStats stats;
    double unix_seconds = 0;
  };
  static constexpr size_t kMaxIterations = 1000;

  class Observer final : public EngineObserver {
   public:
    Observer(Metrics& owner, size_t engine) : owner_(owner), engine_(engine) {}
    void OnStep(const StepStats& stats) override;
    void OnFirstToken(double seconds_since_arrival) override;
    void OnInterToken(double seconds) override;
    void OnFinished(const RequestStats& stats) override;

   private:
    Metrics& owner_;
    const size_t engine_;
  };
  // The counts as of the last log line.
  struct LastLine {
    uint64_t prompt = 0, generation = 0;
    bool busy = false;
  };

  ThroughputCounts AllCounts() const REQUIRES(mutex_);
  void AppendEngines(MetricsText& out, bool idle, std::span<const EngineState> states) const
      REQUIRES(mutex_);
  void AppendCacheConfig(MetricsText& out) const REQUIRES(mutex_);
  void AppendOpTimes(MetricsText& out) const REQUIRES(mutex_);
  void AddOpLines(std::vector<std::string>& lines) REQUIRES(mutex_);

  const double start_time_;
  const std::shared_ptr<const RequestMemory> memory_;  // may be null
  mutable EnergyMeter energy_;
  std::shared_ptr<const SpanExporter> exporter_;  // may be null

  mutable Mutex mutex_;
  std::string model_name_ GUARDED_BY(mutex_);
  bool has_model_ GUARDED_BY(mutex_) = false;
  EngineInfo info_ GUARDED_BY(mutex_);
  ServerConfig config_ GUARDED_BY(mutex_);
  bool sleeping_ GUARDED_BY(mutex_) = false;
  uint64_t rejected_ GUARDED_BY(mutex_) = 0;
  std::deque<Iteration> iterations_ GUARDED_BY(mutex_);
  std::vector<EngineMetrics> engines_ GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Observer>> observers_ GUARDED_BY(mutex_);
  Histogram http_seconds_ GUARDED_BY(mutex_);
  std::map<std::string, Handler, std::less<>> handlers_ GUARDED_BY(mutex_);

  std::chrono::steady_clock::time_point line_time_ GUARDED_BY(mutex_) =
      std::chrono::steady_clock::now();
  std::vector<LastLine> last_lines_ GUARDED_BY(mutex_);
  std::vector<OpTime> last_op_times_
      GUARDED_BY(mutex_);  // values at the time of the last log lines
};

}  // namespace sluice
