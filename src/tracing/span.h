// Spans, and their form on the wire: OpenTelemetry's protocol (OTLP) in protobuf.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tracing/trace_context.h"

namespace sluice {

struct SpanAttribute {
  std::string name;
  std::variant<std::string, int64_t, double> value;
};

// The work on one request of a client (kind SERVER).
struct TraceSpan {
  TraceId trace_id{};
  SpanId span_id{};
  SpanId parent_id{};  // all zeros: it begins the trace
  uint8_t flags = 1;   // W3C's, sampled
  std::string trace_state = {};
  std::string name = {};
  int64_t start_ns = 0, end_ns = 0;  // since 1970
  std::vector<SpanAttribute> attributes = {};
};

// An ExportTraceServiceRequest with all `spans`, of one resource and one scope. Bytes in texts that
// are not UTF-8 become U+FFFD: readers refuse a message with others.
std::string EncodeSpans(std::span<const SpanAttribute> resource, std::string_view scope,
                        std::string_view scope_version, std::span<const TraceSpan> spans);

}  // namespace sluice
