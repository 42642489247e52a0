// Spans, and their encoding as protobuf in OpenTelemetry's protocol (OTLP).
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

// The processing of one client request (kind SERVER).
struct TraceSpan {
  TraceId trace_id{};
  SpanId span_id{};
  SpanId parent_id{};  // all zeros if the span is the root of the trace
  uint8_t flags = 1;   // flags of W3C's Trace Context; 1: sampled
  std::string trace_state = {};
  std::string name = {};
  int64_t start_ns = 0, end_ns = 0;  // nanoseconds since 1970
  std::vector<SpanAttribute> attributes = {};
};

// Encodes `spans` as an ExportTraceServiceRequest with one resource and one scope. Bytes that are
// not UTF-8 become U+FFFD, because collectors refuse messages with invalid UTF-8.
std::string EncodeSpans(std::span<const SpanAttribute> resource, std::string_view scope,
                        std::string_view scope_version, std::span<const TraceSpan> spans);

}  // namespace sluice
