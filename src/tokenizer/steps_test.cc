// Compares single steps of a tokenizer.json, and small complete tokenizers, with the results that
// the library wrote to steps.jsonl (tools/tokenizers/make_step_cases.py).
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "base/json_testing.h"
#include "base/source_path_testing.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer.h"

namespace sluice {
namespace {

using testing::Ids;

std::vector<std::string> Strings(const json::Value& array) {
  std::vector<std::string> out;
  for (const json::Value& element : array.as_array()) out.push_back(element.as_string());
  return out;
}

// For every row of the file that has `key`: calls parse(row[key]) once, then check(parsed, case)
// for each of its `cases`. Returns the number of cases.
template <typename Parse, typename Check>
int ForEachCaseOf(const std::string& path, const std::string& key, const std::string& cases,
                  Parse&& parse, Check&& check) {
  std::ifstream file(path);
  int count = 0;
  for (std::string line; std::getline(file, line);) {
    const auto row = json::Parse(line);
    EXPECT_TRUE(row.has_value()) << row.error().message;
    const json::Value* step = row->Find(key);
    if (step == nullptr || row->Find(cases) == nullptr) continue;
    SCOPED_TRACE(json::Write(*step).substr(0, 3000));
    const auto parsed = parse(*step);
    EXPECT_TRUE(parsed.has_value()) << parsed.error().message;
    if (!parsed) continue;
    for (const json::Value& one : row->Find(cases)->as_array()) {
      SCOPED_TRACE(json::Write(one.as_array()[0]));
      check(*parsed, one.as_array());
      ++count;
    }
  }
  return count;
}

template <typename Parse, typename Check>
int ForEachCase(const std::string& key, Parse&& parse, Check&& check,
                const std::string& cases = "cases") {
  // SLUICE_TOKENIZER_STEPS names another file of the same format.
  if (const char* other = std::getenv("SLUICE_TOKENIZER_STEPS"))
    return ForEachCaseOf(other, key, cases, parse, check);
  return ForEachCaseOf(SourcePath("tests/data/tokenizers/steps.jsonl"), key, cases, parse, check) +
         ForEachCaseOf(SourcePath("tests/data/tokenizers/encoder_steps.jsonl"), key, cases, parse,
                       check) +
         ForEachCaseOf(SourcePath("tests/data/tokenizers/old_steps.jsonl"), key, cases, parse,
                       check);
}

TEST(StepsTest, PreTokenizers) {
  const int count = ForEachCase(
      "pre_tokenizer", [](const json::Value& step) { return PreTokenizer::Parse(&step); },
      [](const PreTokenizer& pre_tokenizer, const json::Value::Array& one) {
        Pieces pieces;
        pre_tokenizer.Run(one[0].as_string(), true, pieces);
        std::vector<std::string> found;
        for (const Pieces::Piece& piece : pieces.pieces) {
          found.emplace_back(pieces.text.substr(piece.begin, piece.end - piece.begin));
        }
        EXPECT_EQ(found, Strings(one[1]));
      });
  EXPECT_GT(count, 500);
}

TEST(StepsTest, Normalizers) {
  const int count = ForEachCase(
      "normalizer", [](const json::Value& step) { return Normalizer::Parse(&step); },
      [](const Normalizer& normalizer, const json::Value::Array& one) {
        EXPECT_EQ(normalizer.Normalize(one[0].as_string()), one[1].as_string());
      });
  EXPECT_GT(count, 200);
}

TEST(StepsTest, Decoders) {
  const int count = ForEachCase(
      "decoder", [](const json::Value& step) { return Decoder::Parse(&step); },
      [](const Decoder& decoder, const json::Value::Array& one) {
        EXPECT_EQ(decoder.Decode(Strings(one[0])), one[1].as_string());
      });
  EXPECT_GT(count, 100);
}

// A few steps must not expand one letter beyond the available memory.
TEST(StepsTest, ReplacementsThatGrowATextWithoutEndAreRefused) {
  const auto sequence = [](const char* list, const std::string& pattern, size_t content,
                           int steps) {
    std::string all;
    for (int i = 0; i < steps; ++i) {
      if (i > 0) all += ",";
      all += R"({"type":"Replace","pattern":)" + pattern + R"(,"content":")" +
             std::string(content, 'a') + R"("})";
    }
    return json::Parse(std::string(R"({"type":"Sequence",")") + list + "\":[" + all + "]}").value();
  };
  const struct {
    std::string pattern;
    size_t content;
    int steps;
    bool accepted;
  } kCases[] = {
      {R"({"String":"a"})", 2, 40, false},      {R"({"String":"a"})", 1, 200, true},
      {R"({"String":"a"})", 2, 10, true},       {R"({"String":"aa"})", 2, 200, true},
      {R"({"Regex":"a+"})", 1, 200, true},      {R"({"Regex":"."})", 10'000, 1, false},
      {R"x({"Regex":"(?=a)"})x", 1, 40, false}, {R"({"Regex":"a*"})", 1, 40, false},
      {R"({"String":""})", 1, 40, false},
  };
  for (const auto& test : kCases) {
    const json::Value normalizers = sequence("normalizers", test.pattern, test.content, test.steps);
    const auto normalizer = Normalizer::Parse(&normalizers);
    EXPECT_EQ(normalizer.has_value(), test.accepted) << test.pattern << test.steps;
    const json::Value decoders = sequence("decoders", test.pattern, test.content, test.steps);
    const auto decoder = Decoder::Parse(&decoders);
    EXPECT_EQ(decoder.has_value(), test.accepted) << test.pattern << test.steps;
    if (normalizer) {
      EXPECT_LE(normalizer->Normalize("aaaa").size(), 4u * 1024);
    }
    if (!decoder) {
      EXPECT_THAT(decoder.error().message, ::testing::HasSubstr("1024 times"));
    }
  }
}

TEST(StepsTest, WholeTokenizers) {
  const int count = ForEachCase(
      "tokenizer", [](const json::Value& whole) { return Tokenizer::Parse(json::Write(whole)); },
      [](const std::unique_ptr<Tokenizer>& tokenizer, const json::Value::Array& one) {
        EXPECT_EQ(tokenizer->Encode(one[0].as_string(), false), Ids(one[1]));
        EXPECT_EQ(tokenizer->Encode(one[0].as_string(), true), Ids(one[2]));
        EXPECT_EQ(tokenizer->Decode(Ids(one[2]), false), one[3].as_string());
        EXPECT_EQ(tokenizer->Decode(Ids(one[2]), true), one[4].as_string());
      });
  EXPECT_GT(count, 400);
}

TEST(StepsTest, PairsOfTexts) {
  const int count = ForEachCase(
      "tokenizer", [](const json::Value& whole) { return Tokenizer::Parse(json::Write(whole)); },
      [](const std::unique_ptr<Tokenizer>& tokenizer, const json::Value::Array& one) {
        const Tokenizer::Pair pair = *tokenizer->EncodePair(one[0].as_string(), one[1].as_string());
        EXPECT_EQ(pair.ids, Ids(one[2]));
        EXPECT_EQ(std::vector<int32_t>(pair.types.begin(), pair.types.end()), Ids(one[3]));
      },
      "pairs");
  EXPECT_GT(count, 50);
}

// A damaged map is refused, or read within its bounds.
TEST(StepsTest, DamagedMapsOfCharacters) {
  const auto parse = [](const std::string& base64) {
    const json::Value step =
        json::Parse(R"({"type":"Precompiled","precompiled_charsmap":")" + base64 + R"("})").value();
    return Normalizer::Parse(&step);
  };
  EXPECT_FALSE(parse("!!!!"));
  EXPECT_FALSE(parse("AAA"));
  EXPECT_FALSE(parse("AA=="));          // shorter than its size field
  EXPECT_FALSE(parse("CAAAAAAAAAA="));  // states 8 bytes, has 4
  EXPECT_FALSE(parse("AAAAAP8="));      // the texts are not UTF-8
  // A single unit whose child is far out of range.
  const auto outside = parse("BAAAAAD8/38=");
  ASSERT_TRUE(outside);
  EXPECT_EQ(outside->Normalize("abc"), "abc");
  EXPECT_EQ(parse("")->Normalize("abc"), "abc");
}

TEST(StepsTest, ModelsThatLackTheirUnknownTokenAreRefused) {
  const auto message = [](const std::string& model) {
    const auto tokenizer = Tokenizer::Parse(R"({"version":"1.0","model":)" + model + "}");
    return tokenizer ? "" : tokenizer.error().message;
  };
  EXPECT_THAT(message(R"({"type":"WordPiece","vocab":{"a":0}})"), ::testing::HasSubstr("[UNK]"));
  EXPECT_THAT(message(R"({"type":"Unigram","unk_id":1,"vocab":[["a",0.5]]})"),
              ::testing::HasSubstr("unk_id"));
  EXPECT_THAT(message(R"({"type":"Unigram","unk_id":0,"vocab":[["a"]]})"),
              ::testing::HasSubstr("model.vocab[0]"));
  EXPECT_THAT(message(R"({"type":"WordLevel","vocab":{"a":0}})"),
              ::testing::HasSubstr("BPE, WordPiece and Unigram"));
  EXPECT_THAT(message(R"({"unk_token":"a","vocab":{"a":0}})"),
              ::testing::HasSubstr("'type' is missing"));
}

TEST(StepsTest, AffixesHaveBounds) {
  const auto message = [](const std::string& option, const std::string& merges) {
    const auto tokenizer =
        Tokenizer::Parse(R"({"version":"1.0","model":{"type":"BPE","vocab":{"a":0,"b":1},)" +
                         option + R"(,"merges":)" + merges + "}}");
    return tokenizer ? "" : tokenizer.error().message;
  };
  EXPECT_EQ(message(R"("end_of_word_suffix":"")", "[]"), "");
  EXPECT_THAT(message(R"("end_of_word_suffix":7)", "[]"),
              ::testing::HasSubstr("end_of_word_suffix: must be a text"));
  EXPECT_THAT(message("\"end_of_word_suffix\":\"" + std::string(65, 'x') + '"', "[]"),
              ::testing::HasSubstr("at most 64 bytes"));
  EXPECT_THAT(message(R"("continuing_subword_prefix":"##")", R"(["a b"])"),
              ::testing::HasSubstr("'b' is shorter than continuing_subword_prefix"));
}

}  // namespace
}  // namespace sluice
