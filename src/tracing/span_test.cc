#include "tracing/span.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

std::string Hex(std::string_view bytes) {
  std::string hex;
  for (const char byte : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    hex += kDigits[static_cast<unsigned char>(byte) >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

// The expected bytes are the output of protobuf's own library; tests/e2e/test_traces.py reads such
// messages with that library.
TEST(SpanTest, IsWrittenAsProtobuf) {
  TraceSpan span;
  span.trace_id.fill(0x11);
  span.span_id.fill(0x22);
  span.parent_id.fill(0x33);
  span.trace_state = "t=1";
  span.name = "x";
  span.start_ns = 1;
  span.end_ns = 300;
  span.attributes = {{"i", int64_t{300}}, {"d", 1.0}, {"s", std::string("v")}};
  const SpanAttribute resource[] = {{"r", std::string("v")}};
  EXPECT_EQ(Hex(EncodeSpans(resource, "a", "b", std::span(&span, 1))),
            "0a84010a0a0a080a017212030a017612760a060a0161120162126c0a10111111"
            "11111111111111111111111111120822222222222222221a03743d3122083333"
            "3333333333332a01783002390100000000000000412c010000000000004a080a"
            "0169120318ac024a0e0a0164120921000000000000f03f4a080a017312030a01"
            "76850101030000");
}

TEST(SpanTest, TextsAreValidUtf8) {
  TraceSpan span;
  span.attributes = {{"id", std::string("a\xff\xc3\xa9\xc3")}};
  const std::string bytes = EncodeSpans({}, "", "", std::span(&span, 1));
  EXPECT_NE(bytes.find("a\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd"), std::string::npos);
}

}  // namespace
}  // namespace sluice
