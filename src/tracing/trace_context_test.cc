#include "tracing/trace_context.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr const char* kParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(TraceContextTest, ReadsWhatACallerSends) {
  const auto context = ParseTraceContext(kParent, "vendor=1,other=2");
  ASSERT_TRUE(context);
  EXPECT_EQ(context->trace_id[0], 0x0a);
  EXPECT_EQ(context->trace_id[15], 0x9c);
  EXPECT_EQ(context->span_id[0], 0xb7);
  EXPECT_EQ(context->span_id[7], 0x31);
  EXPECT_TRUE(context->sampled());
  EXPECT_EQ(context->state, "vendor=1,other=2");
  const std::string parent = kParent;
  const auto silent = ParseTraceContext(parent.substr(0, 53) + "02", "");
  ASSERT_TRUE(silent);
  EXPECT_FALSE(silent->sampled());
  EXPECT_TRUE(ParseTraceContext("cc" + parent.substr(2) + "-what-comes-later", ""));
}

TEST(TraceContextTest, TakesNothingFromTheMalformed) {
  const std::string parent = kParent;
  const std::vector<std::string> malformed = {
      std::string(),
      parent.substr(0, 54),
      parent + "0",
      parent + "-more",
      "ff" + parent.substr(2),
      "0g" + parent.substr(2),
      "00_" + parent.substr(3),
      "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
      "00-00000000000000000000000000000000-b7ad6b7169203331-01",
      "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
      "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0x",
      "cc" + parent.substr(2) + "x",
      std::string(55, '\0'),
      std::string(55, '-')};
  for (const std::string& bad : malformed) {
    EXPECT_FALSE(ParseTraceContext(bad, "")) << bad;
  }
  EXPECT_EQ(ParseTraceContext(kParent, std::string(513, 'a'))->state, "") << "too long";
  EXPECT_EQ(ParseTraceContext(kParent, "a=\n")->state, "");
}

TEST(TraceContextTest, IdsDiffer) {
  EXPECT_NE(RandomTraceId(), RandomTraceId());
  EXPECT_NE(RandomSpanId(), RandomSpanId());
  EXPECT_NE(RandomSpanId(), SpanId{});
}

}  // namespace
}  // namespace sluice
