#include "tokenizer/tekken.h"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json_testing.h"
#include "base/source_path_testing.h"
#include "tokenizer/tokenizer.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::Ids;

const std::string kFolder = SourcePath("tests/data/checkpoints/tiny-mistral-own");

json::Value Recorded() {
  return json::Parse(ReadFile(SourcePath("tests/data/tokenizers/tekken.json")).value()).value();
}

TEST(TekkenTest, EncodesAsMistralCommon) {
  const auto tokenizer = Tokenizer::Load(kFolder);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const json::Value recorded = Recorded();
  for (const json::Value& row : recorded.Find("texts")->as_array()) {
    const std::string& text = row.Find("text")->as_string();
    const std::vector<int32_t> ids = Ids(*row.Find("ids"));
    EXPECT_EQ((*tokenizer)->Encode(text, false), ids) << text;
    EXPECT_EQ((*tokenizer)->Decode(ids, false), text);
  }
  // Texts with special tokens, which have the lowest ids.
  for (const json::Value& row : recorded.Find("chats")->as_array())
    EXPECT_EQ((*tokenizer)->Encode(row.Find("text")->as_string(), false), Ids(*row.Find("ids")));
  EXPECT_EQ((*tokenizer)->vocab_size(), 360);
  EXPECT_EQ((*tokenizer)->bos_token(), "<s>");
  EXPECT_EQ((*tokenizer)->eos_token(), "</s>");
  EXPECT_EQ((*tokenizer)->Encode("the", true).front(), 1);
  EXPECT_EQ((*tokenizer)->IdToToken(29), "<SPECIAL_29>");
  EXPECT_TRUE((*tokenizer)->IsSpecial(3));
}

// Returns the error of reading the recorded file with `from` replaced by `to`; "" if there is none.
std::string ProblemOf(const std::string& from, const std::string& to) {
  std::string text = ReadFile(fs::path(kFolder) / "tekken.json").value();
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  const auto read = ReadTekkenJson(text);
  return read ? "" : read.error().message;
}

TEST(TekkenTest, NamesWhatIsDamaged) {
  EXPECT_THAT(ReadTekkenJson("[]").error().message, HasSubstr("object"));
  EXPECT_THAT(ReadTekkenJson("{}").error().message, HasSubstr("config"));
  EXPECT_THAT(ProblemOf("\"pattern\"", "\"patterns\""), HasSubstr("config.pattern"));
  EXPECT_THAT(ProblemOf("\"default_vocab_size\": 360", "\"default_vocab_size\": 361"),
              HasSubstr("vocab: 330 tokens"));
  EXPECT_THAT(ProblemOf("\"default_num_special_tokens\": 30", "\"default_num_special_tokens\": 9"),
              HasSubstr("special_tokens: 26 tokens"));
  EXPECT_THAT(ProblemOf("\"rank\": 7,", "\"rank\": 8,"), HasSubstr("vocab[7]"));
  EXPECT_THAT(ProblemOf("\"AQ==\"", "\"AQ=\""), HasSubstr("vocab[1].token_bytes"));
  EXPECT_THAT(ProblemOf("\"AQ==\"", "\"AA==\""),
              HasSubstr("vocab[1]: the bytes of a token before"));
  EXPECT_THAT(ProblemOf("\"[INST]\"", "\"<s>\""), HasSubstr("special_tokens[3]"));
}

TEST(TekkenTest, TokensThatTakeTooLongToReadAreRefused) {
  std::string text = R"({"config": {"pattern": "a", "version": "v3", "default_vocab_size": 6,
                         "default_num_special_tokens": 1},
                         "special_tokens": [{"rank": 0, "token_str": "<unk>"}], "vocab": [)";
  for (int rank = 0; rank < 5; ++rank) {
    // Each token has 16,002 bytes.
    text += fmt::format(R"({}{{"rank": {}, "token_bytes": "{}"}})", rank == 0 ? "" : ", ", rank,
                        std::string(21332, 'A') + std::string(4, static_cast<char>('B' + rank)));
  }
  const auto refused = ReadTekkenJson(text + "]}");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("vocab[4]: the squared lengths"));
}

// Files of older versions do not list their special tokens.
TEST(TekkenTest, KnowsTheSpecialTokensOfOlderFiles) {
  std::string text = ReadFile(fs::path(kFolder) / "tekken.json").value();
  text.replace(text.find("\"special_tokens\""), 16, "\"other\"");
  const auto read = ReadTekkenJson(text);
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->parts.added_tokens.size(), 30u);
  EXPECT_EQ(read->parts.added_tokens[19].content, "[TOOL_CONTENT]");
  EXPECT_EQ(read->parts.added_tokens[20].content, "<SPECIAL_20>");
}

TEST(TekkenTest, TokenizerJsonIsReadFirst) {
  const fs::path folder = fs::path(::testing::TempDir()) / "sluice_tekken";
  fs::remove_all(folder);
  fs::create_directories(folder);
  fs::copy_file(fs::path(kFolder) / "tekken.json", folder / "tekken.json");
  EXPECT_TRUE(Tokenizer::Load(folder));
  std::ofstream(folder / "tokenizer.json") << "{";
  EXPECT_FALSE(Tokenizer::Load(folder));
  fs::remove(folder / "tokenizer.json");
  std::ofstream(folder / "tekken.json") << "{";
  const auto damaged = Tokenizer::Load(folder);
  ASSERT_FALSE(damaged);
  EXPECT_THAT(damaged.error().message, HasSubstr("tekken.json"));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace sluice
