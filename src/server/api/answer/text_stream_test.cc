#include "server/api/answer/text_stream.h"

#include <gtest/gtest.h>

#include "base/source_path_testing.h"

namespace sluice {
namespace {

const Tokenizer& TestTokenizer() {
  static const std::unique_ptr<Tokenizer> tokenizer =
      *Tokenizer::Load(SourcePath("tests/data/server/model"));
  return *tokenizer;
}

struct Shown {
  std::vector<std::string> pieces;  // new text after each token
  std::string text;
  std::optional<std::string> stop;
};

Shown Show(const std::vector<int32_t>& tokens, StopRules rules, bool skip_special_tokens = true) {
  TextStream stream(TestTokenizer(), {}, std::move(rules), skip_special_tokens);
  Shown shown;
  for (const int32_t token : tokens) {
    shown.stop = stream.Push(token);
    if (shown.stop) break;
    shown.pieces.push_back(stream.Take());
    shown.text += shown.pieces.back();
  }
  stream.Finish();
  shown.pieces.push_back(stream.Take());
  shown.text += shown.pieces.back();
  return shown;
}

std::vector<int32_t> Tokens(const std::string& text) {
  return TestTokenizer().Encode(text, false);
}

// Tokens that a model generated: " wis", a broken character, " tu", another, " he", "\n'tW", ...
const std::vector<int32_t> kRecorded = {342, 82, 226, 334, 232, 421, 198, 458, 54, 243, 458};

TEST(TextStreamTest, GivesWholeCharacters) {
  EXPECT_EQ(Show(Tokens("caf\u00E9 \u6F22\u5B57 \U0001F9EE"), {}).text,
            "caf\u00E9 \u6F22\u5B57 \U0001F9EE");
  const Shown shown = Show(kRecorded, {});
  EXPECT_EQ(shown.text, " wis\uFFFD tu\uFFFD he\n'tW\uFFFD't");
  EXPECT_EQ(shown.pieces[2], "");
  EXPECT_EQ(shown.pieces[3], "\uFFFD tu");
}

TEST(TextStreamTest, DropsUnfinishedCharacterAtTheEnd) {
  EXPECT_EQ(Show({342, 82, 226}, {}).text, " wis");
  EXPECT_EQ(Show({226}, {}).text, "");
}

// If the prompt ends within a character, the answer has that character and no other text of the
// prompt.
TEST(TextStreamTest, CompletesACharacterOfThePrompt) {
  const std::vector<int32_t> before = Tokens("Many words before a ");
  const std::vector<int32_t> abacus = Tokens("\U0001F9EE");
  ASSERT_EQ(abacus.size(), 4u);
  for (size_t begun = 0; begun <= abacus.size(); ++begun) {
    std::vector<int32_t> prompt = before;
    prompt.insert(prompt.end(), abacus.begin(),
                  abacus.begin() + static_cast<std::ptrdiff_t>(begun));
    TextStream stream(TestTokenizer(), prompt, {}, true);
    for (size_t i = begun; i < abacus.size(); ++i) stream.Push(abacus[i]);
    for (const int32_t token : Tokens(" and")) stream.Push(token);
    stream.Finish();
    EXPECT_EQ(stream.Take(), begun < abacus.size() ? "\U0001F9EE and" : " and") << begun;
    EXPECT_EQ(stream.num_characters(), begun < abacus.size() ? 5 : 4);
  }
}

TEST(TextStreamTest, CutsAtStopStrings) {
  const struct {
    std::vector<std::string> stop;
    bool include;
    const char* text;
    const char* reason;
  } cases[] = {
      {{"s\uFFFD "}, false, " wi", "s\uFFFD "},
      {{"s\uFFFD "}, true, " wis\uFFFD ", "s\uFFFD "},
      {{"\n'tW\uFFFD"}, false, " wis\uFFFD tu\uFFFD he", "\n'tW\uFFFD"},
      {{"\uFFFD"}, false, " wis", "\uFFFD"},
      {{"tW", "tu"}, false, " wis\uFFFD ", "tu"},
      {{"tu\uFFFD he", "\uFFFD "}, false, " wis", "\uFFFD "},
  };
  for (const auto& test : cases) {
    const Shown shown = Show(kRecorded, {test.stop, test.include, 0});
    EXPECT_EQ(shown.text, test.text);
    EXPECT_EQ(shown.stop, test.reason);
  }
}

TEST(TextStreamTest, TakesTheStopThatIsCompleteFirst) {
  // One token adds "mome": "mo" is complete before the longer stop string, which begins earlier.
  const std::vector<int32_t> tokens = {125, 147, 194, 395, 81, 176, 484};
  const Shown shown = Show(tokens, {{"r\uFFFDmome", "mo"}, false, 0});
  EXPECT_EQ(shown.stop, "mo");
  EXPECT_EQ(shown.text, "\uFFFD\uFFFD\x06ifir\uFFFD");
}

TEST(TextStreamTest, HoldsBackWhatCouldBecomeAStop) {
  const std::vector<int32_t> tokens = {64, 65, 66, 67, 68};  // "abcde"
  const Shown shown = Show(tokens, {{"xyz"}, false, 0});
  EXPECT_EQ(shown.pieces, (std::vector<std::string>{"", "", "a", "b", "c", "de"}));
  // A stop string that is included in the output does not have to be withheld.
  EXPECT_EQ(Show(tokens, {{"xyz"}, true, 0}).pieces[0], "a");
  // Characters count, not bytes.
  const Shown wide = Show(Tokens("\u00E9\u00E9\u00E9"), {{"\u00E9x"}, false, 0});
  EXPECT_EQ(wide.text, "\u00E9\u00E9\u00E9");
  for (const std::string& piece : wide.pieces) EXPECT_TRUE(piece.size() % 2 == 0) << piece;
}

TEST(TextStreamTest, FindsAStopOverManyTokens) {
  const Shown shown = Show(Tokens("one two three four"), {{"wo thr"}, false, 0});
  EXPECT_EQ(shown.text, "one t");
}

TEST(TextStreamTest, DoesNotSearchBeforeMinTokens) {
  const std::vector<int32_t> tokens = {64, 65, 66, 64, 65, 66};  // "abcabc"
  const Shown shown = Show(tokens, {{"b"}, false, 3});
  EXPECT_EQ(shown.text, "abca");
  EXPECT_EQ(Show(tokens, {{"b"}, false, 6}).text, "abcabc");
}

TEST(TextStreamTest, SkipsSpecialTokensIfAsked) {
  EXPECT_EQ(Show({510, 82}, {}, true).text, "s");
  EXPECT_EQ(Show({510, 82}, {}, false).text, "<|eot_id|>s");
}

TEST(TextStreamTest, LongTextsStayExact) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "bead " + std::to_string(i) + " \u00E9 ";
  EXPECT_EQ(Show(Tokens(text), {{"bead 3000"}, false, 0}).text, text);
}

}  // namespace
}  // namespace sluice
