// Sends spans to an OpenTelemetry collector with OTLP over HTTP.
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
  std::vector<std::string> headers = {};     // each is "name: value"; may contain secrets
  std::string certificates = {};             // file of trusted issuers; "": the system's
  std::vector<SpanAttribute> resource = {};  // attributes of the process
  std::string version = {};                  // version of this program
};

// Returns the value of an environment variable, or null.
using Variables = std::function<const char*(const char* name)>;

// `endpoint`: the value of --otlp-traces-endpoint, http:// or https://. If it has no path,
// /v1/traces is appended. Also reads OpenTelemetry's variables OTEL_SERVICE_NAME,
// OTEL_RESOURCE_ATTRIBUTES, OTEL_EXPORTER_OTLP_[TRACES_]HEADERS, _CERTIFICATE and _PROTOCOL, which
// must be http/protobuf. kInvalidArgument names the option or the variable.
Result<SpanExporterSettings> ReadSpanExporterSettings(const std::string& endpoint,
                                                      const std::string& version,
                                                      const Variables& variables);

// Queues at most kMaxQueued spans and sends them in batches from its own thread, within a second.
// If the collector does not answer, or answers 429, 502, 503 or 504, retries the batch with growing
// delays. Drops spans while the queue is full, and batches that the collector refuses. Thread
// safety: all methods may be called from any thread.
class SpanExporter {
 public:
  static constexpr size_t kMaxQueued = 2048;
  static constexpr size_t kMaxBatch = 512;

  explicit SpanExporter(SpanExporterSettings settings);
  // Sends the queued spans, for at most two seconds.
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  // Queues the span. Never waits for the collector.
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
  // When sending must end, in ticks of the steady clock; 0: not set.
  std::atomic<std::chrono::steady_clock::rep> deadline_{0};

  Mutex mutex_;
  CondVar wake_;
  std::vector<TraceSpan> queue_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sluice
