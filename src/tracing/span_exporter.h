// Sends spans to a collector of OpenTelemetry, by OTLP over HTTP.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "tracing/span.h"

namespace sluice {

struct SpanExporterSettings {
  std::string url;
  std::vector<std::string> headers = {};     // "name: value"; secrets
  std::string certificates = {};             // a file of trusted issuers; "": the system's
  std::vector<SpanAttribute> resource = {};  // of the process
  std::string version = {};                  // of this program
};

// The value of a variable of the environment, or null.
using Variables = std::function<const char*(const char* name)>;

// `endpoint`: that of --otlp-traces-endpoint, http:// or https://; without a path it is the address
// of a collector, whose path for traces is /v1/traces. Of the variables of OpenTelemetry count
// OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_EXPORTER_OTLP_[TRACES_]HEADERS, _CERTIFICATE
// and _PROTOCOL, which must be http/protobuf. kInvalidArgument names the option or the variable.
Result<SpanExporterSettings> ReadSpanExporterSettings(const std::string& endpoint,
                                                      const std::string& version,
                                                      const Variables& variables);

// Queues at most kMaxQueued spans, and sends them in batches from a thread of its own, at most a
// second later. Where the collector does not answer, or answers 429, 502, 503 or 504, a batch is
// sent again, later and later; spans that find the queue full meanwhile are dropped, and so is a
// batch that is refused. Thread safety: all methods may be called from any thread.
class SpanExporter {
 public:
  static constexpr size_t kMaxQueued = 2048;
  static constexpr size_t kMaxBatch = 512;

  explicit SpanExporter(SpanExporterSettings settings);
  // Sends what is queued, for at most two seconds.
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  // Never waits for the collector.
  void Export(TraceSpan span);

  uint64_t num_sent() const { return num_sent_; }
  uint64_t num_dropped() const { return num_dropped_; }

 private:
  enum class Outcome { kSent, kAgain, kRefused };

  void Work();
  Outcome Send(const std::vector<TraceSpan>& batch, std::string& problem);
  bool TimeIsUp() const;

  const SpanExporterSettings settings_;
  std::atomic<uint64_t> num_sent_{0}, num_dropped_{0};
  // In ticks of the steady clock: when sending has to end; 0: not yet.
  std::atomic<std::chrono::steady_clock::rep> deadline_{0};

  Mutex mutex_;
  CondVar wake_;
  std::vector<TraceSpan> queue_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sluice
