#include "constraints/string_counter.h"

#include <gtest/gtest.h>

#include "constraints/constraint.h"

namespace sluice {
namespace {

int32_t CountOf(std::string_view text) {
  StringCounter counter;
  for (const char c : text) EXPECT_TRUE(counter.Take(static_cast<unsigned char>(c))) << text;
  return counter.count();
}

TEST(StringCounterTest, CountsCodePoints) {
  EXPECT_EQ(CountOf(""), 0);
  EXPECT_EQ(CountOf("abc"), 3);
  EXPECT_EQ(CountOf("é€😀"), 3);
}

TEST(StringCounterTest, AnEscapeIsOne) {
  EXPECT_EQ(CountOf(R"(\n\"\\\/)"), 4);
  EXPECT_EQ(CountOf(R"(a\u00e9b)"), 3);
  EXPECT_EQ(CountOf(R"(\ud83d\ude00)"), 1) << "a pair";
  EXPECT_EQ(CountOf(R"(\uD83D\uDE00\uD83D\uDE00)"), 2);
  EXPECT_EQ(CountOf(R"(\ud83d\u0041)"), 2) << "half a pair and a letter";
  EXPECT_EQ(CountOf(R"(\ud83d\n)"), 2);
  EXPECT_EQ(CountOf(R"(\ud83dx)"), 2);
  EXPECT_EQ(CountOf(R"(\ud83d\ud83d\ude00)"), 2);
  EXPECT_EQ(CountOf(R"(\ude00\ud83d)"), 2);
  // An escape counts from its backslash on.
  EXPECT_EQ(CountOf(R"(a\)"), 2);
  EXPECT_EQ(CountOf(R"(a\u00)"), 2);
}

TEST(StringCounterTest, EndsAtAQuoteThatIsNotEscaped) {
  StringCounter counter;
  for (const char c : std::string_view(R"(a\"b\\)"))
    EXPECT_TRUE(counter.Take(static_cast<unsigned char>(c)));
  EXPECT_FALSE(counter.Take('"'));
  EXPECT_EQ(counter.count(), 4);
}

TEST(TokenLengthsTest, MasksKeepWhatFits) {
  const std::string longest(40, 'x'), longer(20, 'y');
  const TokenLengths lengths({"", "a", "ab\",", longest, R"(\n)", longer, R"(\")"});
  EXPECT_EQ(lengths.characters(2), 2) << "up to the quote";
  EXPECT_EQ(std::vector(lengths.with_quote().begin(), lengths.with_quote().end()),
            (std::vector<int32_t>{2, 6}));
  const auto kept = [&](int32_t most) {
    std::vector<uint32_t> mask(MaskWords(64), ~uint32_t{0});
    lengths.KeepAtMost(most, mask);
    return mask[0] & 0x7F;
  };
  EXPECT_EQ(kept(-1), 0b0000001u);
  EXPECT_EQ(kept(0), 0b0000001u);
  EXPECT_EQ(kept(1), 0b1010011u);
  EXPECT_EQ(kept(2), 0b1010111u);
  EXPECT_EQ(kept(16), 0b1010111u);
  EXPECT_EQ(kept(19), 0b1010111u);
  EXPECT_EQ(kept(20), 0b1110111u);
  EXPECT_EQ(kept(40), 0b1111111u);
}

}  // namespace
}  // namespace sluice
