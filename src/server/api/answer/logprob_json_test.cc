#include "server/api/answer/logprob_json.h"

#include <gtest/gtest.h>

#include "base/source_path_testing.h"

namespace sluice {
namespace {

const Tokenizer& LogprobTokenizer() {
  static const std::unique_ptr<Tokenizer> tokenizer =
      *Tokenizer::Load(SourcePath("tests/data/server/model"));
  return *tokenizer;
}

// Returns the result of Push() for each of `tokens` after `prompt`.
std::vector<std::string> PushedTexts(const std::vector<int32_t>& prompt,
                                     const std::vector<int32_t>& tokens) {
  PendingTokens pending(LogprobTokenizer(), prompt);
  std::vector<std::string> texts;
  for (const int32_t token : tokens) texts.push_back(pending.Push(LogprobTokenizer(), token));
  return texts;
}

TEST(PendingTokensTest, GivesBytesToTheTokenThatCompletesThem) {
  using Strings = std::vector<std::string>;
  EXPECT_EQ(PushedTexts({}, {342, 226, 82, 510}), (Strings{" wi", "", "\uFFFDs", "<|eot_id|>"}));
  const std::vector<int32_t> abacus = LogprobTokenizer().Encode("\U0001F9EE", false);
  ASSERT_EQ(abacus.size(), 4u);
  EXPECT_EQ(PushedTexts({}, abacus), (Strings{"", "", "", "\U0001F9EE"}));
  EXPECT_EQ(PushedTexts({82, abacus[0], abacus[1]}, {abacus[2], abacus[3]}),
            (Strings{"", "\U0001F9EE"}));
}

TEST(PendingTokensTest, AlternativesAreShownInTheirPlace) {
  const std::vector<int32_t> abacus = LogprobTokenizer().Encode("\U0001F9EE", false);
  PendingTokens pending(LogprobTokenizer(), std::span(abacus).first(3));
  EXPECT_EQ(pending.TextOf(LogprobTokenizer(), abacus[3]), "\U0001F9EE");
  EXPECT_EQ(pending.TextOf(LogprobTokenizer(), 342), " wi");
  EXPECT_EQ(pending.TextOf(LogprobTokenizer(), abacus[0]), "");
  EXPECT_EQ(PendingTokens().TextOf(LogprobTokenizer(), abacus[3]), "");
}

TEST(PromptOffsetsTest, CountsWhatIsShown) {
  const Tokenizer& tokenizer = LogprobTokenizer();
  const std::string text = "The caf\u00E9 \U0001F9EE";
  std::vector<int32_t> tokens = tokenizer.Encode(text, false);
  std::vector<int64_t> plain = PromptOffsets(tokenizer, tokens, text);
  EXPECT_EQ(plain.front(), 0);
  EXPECT_EQ(plain.back(), 9) << "the last character has four tokens";
  // A special token has a width only if the shown text contains it.
  tokens.insert(tokens.begin(), 510);
  std::vector<int64_t> offsets = PromptOffsets(tokenizer, tokens, text);
  EXPECT_EQ(std::vector<int64_t>(offsets.begin() + 1, offsets.end()), plain);
  EXPECT_EQ(PromptOffsets(tokenizer, tokens, "<|eot_id|>" + text)[1], 10);
  EXPECT_EQ(PromptOffsets(tokenizer, tokens, "").back(), 0);
}

TEST(ChosenAndTopTest, ChosenFirstNothingTwice) {
  const TokenLogprobs best{5, -0.5f, 1, {{5, -0.5f}, {6, -1.0f}}};
  EXPECT_EQ(ChosenAndTop(best, 3).size(), 2u);
  const TokenLogprobs other{9, -3.0f, 7, {{5, -0.5f}, {6, -1.0f}}};
  const auto entries = ChosenAndTop(other, 3);
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].first, 9);
  EXPECT_EQ(ChosenAndTop(other, 2).size(), 2u);
}

}  // namespace
}  // namespace sluice
