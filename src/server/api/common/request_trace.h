// The spans of a request, with the names and attributes that `vllm serve` gives them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/observer.h"
#include "server/http/http_types.h"
#include "tracing/span_exporter.h"

namespace sluice {

// What the spans of one request have in common: one span for each of its prompts. Thread safety:
// immutable.
class RequestTrace {
 public:
  // Null without an exporter, and where the client's trace is not sampled. It begins now; the trace
  // of the headers `traceparent` and `tracestate` is continued. `model`: the name in answers.
  static std::shared_ptr<const RequestTrace> Begin(std::shared_ptr<SpanExporter> exporter,
                                                   const HttpRequest& request, std::string id,
                                                   std::string model, int n,
                                                   const SamplingParams& sampling);

  // A prompt's last sequence has ended: its span ends now. Called on the engine's thread.
  void Finish(const RequestStats& stats) const;

 private:
  RequestTrace() = default;

  std::shared_ptr<SpanExporter> exporter_;
  TraceSpan begun_;
  std::string id_, model_;
  int n_ = 1;
  double temperature_ = 1, top_p_ = 1;
};

}  // namespace sluice
