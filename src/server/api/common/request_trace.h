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

// The common data of all spans of a request; there is one span per prompt. Thread safety:
// immutable.
class RequestTrace {
 public:
  // Returns null without an exporter, or if the client's trace is not sampled. The spans begin with
  // this call and continue the trace in the headers `traceparent` and `tracestate`. `model`: the
  // model's name in answers.
  static std::shared_ptr<const RequestTrace> Begin(std::shared_ptr<SpanExporter> exporter,
                                                   const HttpRequest& request, std::string id,
                                                   std::string model, int n,
                                                   const SamplingParams& sampling);

  // Ends the span of a prompt whose last sequence has ended. Called on the engine's thread.
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
