// The trace that a request belongs to, read from the headers of W3C's Trace Context.
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
  SpanId span_id{};  // id of the caller's span
  uint8_t flags = 0;
  std::string state = {};  // value of tracestate; "" if absent or unusable

  bool sampled() const { return (flags & 1) != 0; }
};

// Parses the headers `traceparent` and `tracestate` (may be ""). nullopt if `traceparent` is
// malformed: the request then begins a new trace, as the specification requires.
std::optional<TraceContext> ParseTraceContext(std::string_view traceparent,
                                              std::string_view tracestate);

// Never returns all zeros. Thread safety: any thread.
TraceId RandomTraceId();
SpanId RandomSpanId();

}  // namespace sluice
