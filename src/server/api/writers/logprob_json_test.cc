#include "server/api/writers/logprob_json.h"

#include <gtest/gtest.h>

#include "base/source_path_testing.h"

namespace sluice {
namespace {

TEST(TokenTextTest, GivesBytesToTheTokenThatCompletesThem) {
  const std::unique_ptr<Tokenizer> loaded = *Tokenizer::Load(SourcePath("tests/data/server/model"));
  const Tokenizer& tokenizer = *loaded;
  EXPECT_EQ(TokenText(tokenizer, 342, {}), " wi");
  EXPECT_EQ(TokenText(tokenizer, 226, {}), "");
  const std::vector<int32_t> abacus = tokenizer.Encode("\U0001F9EE", /*add_special_tokens=*/false);
  ASSERT_EQ(abacus.size(), 4u);
  EXPECT_EQ(TokenText(tokenizer, abacus[0], {}), "");
  EXPECT_EQ(TokenText(tokenizer, abacus[2], std::span(abacus).first(2)), "");
  EXPECT_EQ(TokenText(tokenizer, abacus[3], std::span(abacus).first(3)), "\U0001F9EE");
  EXPECT_EQ(TokenText(tokenizer, 510, {}), "<|eot_id|>");
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
