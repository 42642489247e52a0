#include "tokenizer/incremental_detokenizer.h"
#include "base/utf8.h"

#include <gtest/gtest.h>

#include "base/source_path_testing.h"
#include "tokenizer/unicode.h"

namespace sluice {
namespace {

std::unique_ptr<Tokenizer> LoadSample(const std::string& name) {
  auto tokenizer = Tokenizer::Load(SourcePath("tests/data/tokenizers/") + name);
  EXPECT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  return *std::move(tokenizer);
}

constexpr char kByteLevel[] = "v03_llama3_ignore_merges_bos";
constexpr char kSentencePiece[] = "v11_spm_llama2_prepend_bytefallback";

TEST(IncrementalDetokenizerTest, NeverHalfACharacter) {
  for (const char* name : {kByteLevel, kSentencePiece}) {
    const auto tokenizer = LoadSample(name);
    const std::string text =
        "Hello \U0001F468\u200D\U0001F469 \u4E2D\u6587 na\u00EFve \U0001D11E end";
    const std::vector<int32_t> ids = tokenizer->Encode(text, false);
    IncrementalDetokenizer detokenizer(*tokenizer, true);
    std::string joined;
    for (const int32_t id : ids) {
      const std::string piece = detokenizer.Push(id);
      EXPECT_TRUE(IsValidUtf8(piece));
      EXPECT_EQ(piece.find(unicode::kReplacement), std::string::npos);
      joined += piece;
    }
    EXPECT_EQ(joined + detokenizer.Finish(), text) << name;
  }
}

TEST(IncrementalDetokenizerTest, UnfinishedCharacterIsDropped) {
  const auto tokenizer = LoadSample(kByteLevel);
  std::vector<int32_t> ids = tokenizer->Encode("ok\U0001F9FF", false);
  ids.pop_back();
  IncrementalDetokenizer detokenizer(*tokenizer, true);
  std::string joined;
  for (const int32_t id : ids) joined += detokenizer.Push(id);
  EXPECT_EQ(joined + detokenizer.Finish(), "ok");
}

TEST(IncrementalDetokenizerTest, PromptTailDecidesAboutTheFirstSpace) {
  const auto tokenizer = LoadSample(kSentencePiece);
  const std::vector<int32_t> prompt = tokenizer->Encode("Say", true);
  const std::vector<int32_t> answer = tokenizer->Encode("the", false);
  const auto run = [&](std::span<const int32_t> tail) {
    IncrementalDetokenizer detokenizer(*tokenizer, true, tail);
    std::string joined;
    for (const int32_t id : answer) joined += detokenizer.Push(id);
    return joined;
  };
  EXPECT_EQ(run({}), "the");
  EXPECT_EQ(run(prompt), " the");
}

TEST(IncrementalDetokenizerTest, EndlessInvalidBytesAreBounded) {
  for (const char* name : {kByteLevel, kSentencePiece}) {
    const auto tokenizer = LoadSample(name);
    int32_t lone = -1;  // A token that is a UTF-8 continuation byte.
    for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
      if (tokenizer->TokenBytes(id) == "\x80") lone = id;
    }
    ASSERT_GE(lone, 0) << name;
    IncrementalDetokenizer detokenizer(*tokenizer, true);
    size_t characters = 0;
    const size_t tokens = 20 * IncrementalDetokenizer::kMaxPendingTokens;
    for (size_t i = 0; i < tokens; ++i) characters += detokenizer.Push(lone).size() / 3;
    EXPECT_GE(characters, tokens - 2 * IncrementalDetokenizer::kMaxPendingTokens) << name;
    EXPECT_LE(characters, tokens) << name;
  }
}

TEST(IncrementalDetokenizerTest, SkippedAndUnknownTokensLeaveNoTrace) {
  for (const char* name : {kByteLevel, kSentencePiece}) {
    const auto tokenizer = LoadSample(name);
    std::vector<int32_t> ids;
    const std::vector<int32_t> special = tokenizer->Encode("", true);
    for (const int32_t id : tokenizer->Encode("One two three", false)) {
      ids.push_back(id);
      ids.push_back(tokenizer->vocab_size() + 7);
      ids.insert(ids.end(), special.begin(), special.end());
    }
    IncrementalDetokenizer detokenizer(*tokenizer, true);
    std::string joined;
    for (const int32_t id : ids) joined += detokenizer.Push(id);
    EXPECT_EQ(joined, "One two three") << name;
  }
}

TEST(IncrementalDetokenizerTest, PromptTailIsShortAndWhole) {
  const auto tokenizer = LoadSample(kByteLevel);
  std::vector<int32_t> prompt = tokenizer->Encode("A longer prompt that ends in plain words", true);
  EXPECT_EQ(IncrementalDetokenizer::PromptTail(*tokenizer, prompt).size(), 4u);
  EXPECT_EQ(IncrementalDetokenizer::PromptTail(*tokenizer, std::span(prompt).first(2)).size(), 2u);
  EXPECT_TRUE(IncrementalDetokenizer::PromptTail(*tokenizer, {}).empty());
}

}  // namespace
}  // namespace sluice
