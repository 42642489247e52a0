#include "base/utf8.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

std::string Utf8(uint32_t code) {
  std::string out;
  AppendUtf8(out, code);
  return out;
}

TEST(Utf8, WritesTheShortestFormAtEachBorder) {
  EXPECT_EQ(Utf8(0x7F), "\x7F");
  EXPECT_EQ(Utf8(0x80), "\xC2\x80");
  EXPECT_EQ(Utf8(0x7FF), "\xDF\xBF");
  EXPECT_EQ(Utf8(0x800), "\xE0\xA0\x80");
  EXPECT_EQ(Utf8(0xFFFF), "\xEF\xBF\xBF");
  EXPECT_EQ(Utf8(0x10000), "\xF0\x90\x80\x80");
  EXPECT_EQ(Utf8(0x10FFFF), "\xF4\x8F\xBF\xBF");
}

}  // namespace
}  // namespace sluice
