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

TEST(Utf8, KnowsWhatIsWellFormed) {
  for (const char* text :
       {"", "a", "\xC2\x80", "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"})
    EXPECT_TRUE(IsValidUtf8(text)) << text;
  for (const char* text :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82", "a\xFF"})
    EXPECT_FALSE(IsValidUtf8(text)) << text;
}

// IsValidUtf8 and FirstUtf8Sequence agree on every text of four bytes at the borders of UTF-8's
// byte ranges.
TEST(Utf8, SequencesAndValidationAgree) {
  const std::string bytes = "\x7F\x80\x8F\x90\x9F\xA0\xBF\xC1\xC2\xDF\xE0\xED\xEF\xF0\xF4\xF5";
  for (size_t i = 0; i < 16 * 16 * 16 * 16; ++i) {
    const std::string text = {bytes[i & 15], bytes[i >> 4 & 15], bytes[i >> 8 & 15],
                              bytes[i >> 12 & 15]};
    bool all = true;
    for (std::string_view rest = text; !rest.empty();) {
      const Utf8Sequence first = FirstUtf8Sequence(rest);
      ASSERT_GE(first.size, 1u);
      ASSERT_LE(first.size, rest.size());
      ASSERT_EQ(IsValidUtf8(rest.substr(0, first.size)), first.valid);
      all = all && first.valid;
      rest.remove_prefix(first.size);
    }
    ASSERT_EQ(IsValidUtf8(text), all);
  }
}

TEST(Utf8, InvalidPartsAreAsLongAsTheyCouldBeValid) {
  EXPECT_EQ(FirstUtf8Sequence("\xE2\x82").size, 2u);
  EXPECT_EQ(FirstUtf8Sequence("\xE2\x82x").size, 2u);
  EXPECT_EQ(FirstUtf8Sequence("\xED\xA0\x80").size, 1u);
  EXPECT_EQ(FirstUtf8Sequence("\x80\x80").size, 1u);
}

TEST(Utf8, PrefixesEndBetweenSequences) {
  EXPECT_EQ(Utf8Prefix("abc", 3), "abc");
  EXPECT_EQ(Utf8Prefix("abc", 2), "ab");
  EXPECT_EQ(Utf8Prefix("a\u20ACb", 3), "a");
  EXPECT_EQ(Utf8Prefix("a\u20ACb", 4), "a\u20AC");
  EXPECT_EQ(Utf8Prefix("\u20AC", 2), "");
}

TEST(Utf8, ControlsAreEscaped) {
  EXPECT_EQ(EscapeControls("a\nb\r\t\x1b[\x7f\u00E9", "\t"), "a\\nb\\x0d\t\\x1b[\\x7f\u00E9");
  EXPECT_EQ(EscapeControls("\n", "\n"), "\n");
}

}  // namespace
}  // namespace sluice
