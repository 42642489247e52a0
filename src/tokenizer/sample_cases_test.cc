// Compares complete vocabularies with recorded results of Hugging Face `tokenizers`
// (tests/data/tokenizers/*/cases.jsonl).
//
// SLUICE_REAL_TOKENIZERS=FOLDER adds published vocabularies, which cannot be in this repository
// because of their licenses: every FOLDER/*/ with a tokenizer.json and a cases.jsonl of the same
// format (tools/tokenizers/README.md describes how to make them).
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/json_testing.h"
#include "base/source_path_testing.h"
#include "tokenizer/incremental_detokenizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace sluice {
namespace {

using testing::Ids;

std::string Text(const json::Value& row) {
  if (const json::Value* text = row.Find("text")) return text->as_string();
  std::string out;
  for (const json::Value& part : row.Find("parts")->as_array()) {
    for (int64_t i = 0; i < part.as_array()[1].as_integer(); ++i)
      out += part.as_array()[0].as_string();
  }
  return out;
}

// For long results the file holds the count, both ends and a hash. This function compares the count
// and the ends.
void ExpectIds(const json::Value& want, const std::vector<int32_t>& ids) {
  if (const json::Value* all = want.Find("ids")) {
    EXPECT_EQ(ids, Ids(*all));
    return;
  }
  ASSERT_EQ(static_cast<int64_t>(ids.size()), want.Find("n")->as_integer());
  EXPECT_EQ(std::vector<int32_t>(ids.begin(), ids.begin() + 16), Ids(*want.Find("head")));
  EXPECT_EQ(std::vector<int32_t>(ids.end() - 16, ids.end()), Ids(*want.Find("tail")));
}

void ExpectText(const json::Value& want, const std::string& text, const std::string& whole) {
  if (want.Find("same") != nullptr) {
    EXPECT_EQ(text, whole);
  } else if (const json::Value* other = want.Find("text")) {
    EXPECT_EQ(text, other->as_string());
  } else {
    EXPECT_EQ(static_cast<int64_t>(unicode::ToCodePoints(text).size()),
              want.Find("chars")->as_integer());
  }
}

void CheckEncode(const Tokenizer& tokenizer, const json::Value& row) {
  const std::string text = Text(row);
  ExpectIds(*row.Find("plain"), tokenizer.Encode(text, false));
  const std::vector<int32_t> ids = tokenizer.Encode(text, true);
  const json::Value* special = row.Find("with_special");
  ExpectIds(special->is_null() ? *row.Find("plain") : *special, ids);
  ExpectText(*row.Find("decode_keep"), tokenizer.Decode(ids, false), text);
  ExpectText(*row.Find("decode_skip"), tokenizer.Decode(ids, true), text);
}

void CheckStream(const Tokenizer& tokenizer, const json::Value& row) {
  const std::vector<int32_t> ids = Ids(*row.Find("ids"));
  const bool skip = row.Find("skip_special_tokens")->as_bool();
  EXPECT_EQ(tokenizer.Decode(ids, skip), row.Find("full")->as_string());
  const json::Value* chunks = row.Find("chunks");
  if (chunks == nullptr || chunks->is_null()) return;  // The library itself fails on this text.
  const auto prefix = static_cast<size_t>(row.Find("prefix_len")->as_integer());
  IncrementalDetokenizer detokenizer(tokenizer, skip, std::span(ids).first(prefix));
  for (size_t i = prefix; i < ids.size(); ++i) {
    const json::Value& want = chunks->as_array()[i - prefix];
    EXPECT_EQ(detokenizer.Push(ids[i]), want.is_null() ? "" : want.as_string()) << "token " << i;
  }
}

// Returns the number of rows checked in all folders below `root`.
int CheckFolders(const std::filesystem::path& root) {
  int rows = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (!std::filesystem::exists(entry.path() / "cases.jsonl")) continue;
    SCOPED_TRACE(entry.path().filename().string());
    const auto tokenizer = Tokenizer::Load(entry.path());
    EXPECT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
    if (!tokenizer) continue;
    std::ifstream file(entry.path() / "cases.jsonl");
    for (std::string line; std::getline(file, line); ++rows) {
      SCOPED_TRACE(line.substr(0, 300));
      const auto row = json::Parse(line);
      EXPECT_TRUE(row.has_value());
      if (row->Find("kind")->as_string() == "encode") {
        CheckEncode(**tokenizer, *row);
      } else {
        CheckStream(**tokenizer, *row);
      }
    }
  }
  return rows;
}

TEST(SampleCasesTest, SmallVocabularies) {
  EXPECT_GT(CheckFolders(SourcePath("tests/data/tokenizers")), 1500);
}

TEST(SampleCasesTest, RealVocabularies) {
  const char* folder = std::getenv("SLUICE_REAL_TOKENIZERS");
  if (folder == nullptr) GTEST_SKIP() << "SLUICE_REAL_TOKENIZERS is not set";
  EXPECT_GT(CheckFolders(folder), 0);
}

}  // namespace
}  // namespace sluice
