// Which trace a request belongs to, as W3C's Trace Context tells it in headers.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

using TraceId = std::array<unsigned char, 16>;
using SpanId = std::array<unsigned char, 8>;

struct TraceContext {
  TraceId trace_id{};
  SpanId span_id{};  // of the caller's span
  uint8_t flags = 0;
  std::string state = {};  // the value of tracestate; "" where there is none that can be used

  bool sampled() const { return (flags & 1) != 0; }
};

// Reads the headers `traceparent` and `tracestate` (the latter may be ""). Nothing where the first
// is malformed: the request then begins a trace of its own, as the specification asks.
std::optional<TraceContext> ParseTraceContext(std::string_view traceparent,
                                              std::string_view tracestate);

// Never all zeros. Thread safety: may be called from any thread.
TraceId RandomTraceId();
SpanId RandomSpanId();

}  // namespace sluice
