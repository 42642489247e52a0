#include "tracing/trace_context.h"

#include <sys/random.h>

#include <algorithm>

#include "base/check.h"

namespace sluice {
namespace {

constexpr size_t kTraceParentBytes = 55;  // length of 00-<32 digits>-<16 digits>-<2 digits>
constexpr size_t kMaxTraceState = 512;

// Accepts only lower case, as the specification requires.
int HexValue(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

template <size_t kSize>
bool ReadHexBytes(std::string_view digits, std::array<unsigned char, kSize>& bytes) {
  for (size_t i = 0; i < kSize; ++i) {
    const int high = HexValue(digits[2 * i]), low = HexValue(digits[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    bytes[i] = static_cast<unsigned char>(high << 4 | low);
  }
  return true;
}

template <size_t kSize>
bool IsZero(const std::array<unsigned char, kSize>& bytes) {
  return std::ranges::all_of(bytes, [](unsigned char byte) { return byte == 0; });
}

template <typename Id>
Id RandomId() {
  Id id;
  do {
    CHECK(getrandom(id.data(), id.size(), 0) == static_cast<ssize_t>(id.size()), "getrandom");
  } while (IsZero(id));
  return id;
}

}  // namespace

std::optional<TraceContext> ParseTraceContext(std::string_view traceparent,
                                              std::string_view tracestate) {
  if (traceparent.size() < kTraceParentBytes || traceparent[2] != '-' || traceparent[35] != '-' ||
      traceparent[52] != '-')
    return std::nullopt;
  TraceContext context;
  std::array<unsigned char, 1> version, flags;
  if (!ReadHexBytes(traceparent.substr(0, 2), version) ||
      !ReadHexBytes(traceparent.substr(3, 32), context.trace_id) ||
      !ReadHexBytes(traceparent.substr(36, 16), context.span_id) ||
      !ReadHexBytes(traceparent.substr(53, 2), flags))
    return std::nullopt;
  // Later versions may append more fields.
  const bool longer = traceparent.size() > kTraceParentBytes;
  if (version[0] == 0xff || (longer && (version[0] == 0 || traceparent[kTraceParentBytes] != '-')))
    return std::nullopt;
  if (IsZero(context.trace_id) || IsZero(context.span_id)) return std::nullopt;
  context.flags = flags[0];
  const auto is_visible = [](char c) { return c >= ' ' && c <= '~'; };
  if (tracestate.size() <= kMaxTraceState && std::ranges::all_of(tracestate, is_visible))
    context.state = tracestate;
  return context;
}

TraceId RandomTraceId() {
  return RandomId<TraceId>();
}

SpanId RandomSpanId() {
  return RandomId<SpanId>();
}

}  // namespace sluice
