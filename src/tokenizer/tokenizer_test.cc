#include "tokenizer/tokenizer.h"

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/source_path_testing.h"
#include "tokenizer/tokenize_tool.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kLlamaLike = SourcePath("tests/data/tokenizers/v03_llama3_ignore_merges_bos");

// Returns a pre-tokenizer that splits by a regex, given as JSON string content.
std::string Split(const std::string& regex) {
  return R"({"type":"Split","pattern":{"Regex":")" + regex +
         R"("},"behavior":"Isolated","invert":false})";
}

// Returns a tokenizer.json with one part replaced.
std::string Json(const std::string& key, const std::string& value) {
  std::string out = R"({"version":"1.0")";
  const std::pair<const char*, const char*> parts[] = {
      {"added_tokens", "[]"},
      {"normalizer", "null"},
      {"pre_tokenizer", "null"},
      {"post_processor", "null"},
      {"decoder", "null"},
      {"model", R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"<u>":3},"merges":["a b"]})"}};
  for (const auto& [name, text] : parts)
    out += ",\"" + std::string(name) + "\":" + (key == name ? value : text);
  return out + "}";
}

std::string ErrorOf(const std::string& text) {
  const auto tokenizer = Tokenizer::Parse(text);
  return tokenizer ? "no error" : tokenizer.error().message;
}

TEST(TokenizerTest, MergesByRank) {
  const auto tokenizer = Tokenizer::Parse(Json("", ""));
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  EXPECT_THAT((*tokenizer)->Encode("abba", false), ElementsAre(2, 1, 0));
  // Without unk_token, an unknown character is dropped, and its neighbors become adjacent.
  EXPECT_THAT((*tokenizer)->Encode("axb", false), ElementsAre(2));
  EXPECT_EQ((*tokenizer)->vocab_size(), 4);
}

TEST(TokenizerTest, EndsEarlyWhenItIsToldTo) {
  const auto tokenizer = Tokenizer::Load(kLlamaLike);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  const Tokenizer& t = **tokenizer;
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "Hello ";
  const std::vector<int32_t> all = t.Encode(text, false);
  int asked = 0;
  EXPECT_EQ(t.EncodeWithin(text, false, [&] { return ++asked < 0; }), all);
  EXPECT_GE(asked, 5);
  asked = 0;
  const auto stopped = t.EncodeWithin(text, false, [&] { return ++asked == 2; });
  ASSERT_FALSE(stopped.has_value());
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(asked, 2);
}

TEST(TokenizerTest, UnknownIdsStandForNothing) {
  const auto tokenizer = Tokenizer::Load(kLlamaLike);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  const Tokenizer& t = **tokenizer;
  const std::vector<int32_t> ids = t.Encode("Hello", false);
  std::vector<int32_t> padded{-1, 1 << 30, t.vocab_size()};
  padded.insert(padded.end(), ids.begin(), ids.end());
  EXPECT_EQ(t.Decode(padded, false), "Hello");
  EXPECT_EQ(t.IdToToken(t.vocab_size()), "");
  EXPECT_EQ(t.TokenBytes(-5), "");
  EXPECT_FALSE(t.IsSpecial(-5));
}

TEST(TokenizerTest, NamesSpellingsAndBytes) {
  const auto tokenizer = Tokenizer::Load(kLlamaLike);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  const Tokenizer& t = **tokenizer;
  const auto the = t.TokenToId("Ġthe");
  ASSERT_TRUE(the.has_value());
  EXPECT_EQ(t.IdToToken(*the), "Ġthe");
  EXPECT_EQ(t.TokenBytes(*the), " the");
  const auto begin = t.TokenToId("<|begin|>");
  ASSERT_TRUE(begin.has_value());
  EXPECT_TRUE(t.IsSpecial(*begin));
  EXPECT_TRUE(t.IsAdded(*begin));
  EXPECT_FALSE(t.IsSpecial(*the));
  EXPECT_EQ(t.Encode("x", true)[0], *begin);
  EXPECT_FALSE(t.TokenToId("no such token").has_value());
}

TEST(TokenizerTest, InvalidUtf8CountsAsReplacementCharacter) {
  const auto tokenizer = Tokenizer::Load(kLlamaLike);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->Encode("a\xE4\xB8 \xFFz", false),
            (*tokenizer)->Encode("a\uFFFD \uFFFDz", false));
}

TEST(TokenizerTest, ManyEqualCharactersAreNotQuadratic) {
  const auto tokenizer = Tokenizer::Load(kLlamaLike);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  // A quadratic algorithm would need minutes for a million characters; the limit leaves room for
  // sanitizers.
  const std::clock_t start = std::clock();  // CPU time: other load does not count
  for (const char c : {'a', ' ', '=', '\n'}) {
    const std::string text(1'000'000, c);
    EXPECT_EQ((*tokenizer)->Decode((*tokenizer)->Encode(text, false), false), text);
  }
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 120);
}

TEST(TokenizerTest, ThreadsShareOne) {
  const auto tokenizer = Tokenizer::Load(kLlamaLike);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  const std::string text = "Threads that tokenize the same unusualwordlike text, 12345 times.";
  const std::vector<int32_t> want = (*tokenizer)->Encode(text, true);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 200; ++k) EXPECT_EQ((*tokenizer)->Encode(text, true), want);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(TokenizerTest, TwoVocabulariesDoNotShareCachedPieces) {
  const auto first = Tokenizer::Parse(Json("", ""));
  const auto second = Tokenizer::Parse(
      Json("model", R"({"type":"BPE","vocab":{"a":7,"b":8,"<u>":9},"merges":[]})"));
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_THAT((*first)->Encode("aab", false), ElementsAre(0, 2));
  EXPECT_THAT((*second)->Encode("aab", false), ElementsAre(7, 7, 8));
  EXPECT_THAT((*first)->Encode("aab", false), ElementsAre(0, 2));
}

TEST(TokenizerTest, RefusesByName) {
  const std::pair<std::string, std::string> cases[] = {
      {Json("model", R"({"type":"WordLevel","vocab":{"a":0}})"), "'WordLevel'"},
      {Json("model", R"({"type":"BPE","vocab":{"a":0},"merges":[],"dropout":0.1})"), "dropout"},
      {Json("normalizer", R"({"type":"Nmt"})"), "'Nmt'"},
      {Json("normalizer", R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Nmt"}]})"),
       "normalizers[1]"},
      {Json("pre_tokenizer", R"({"type":"UnicodeScripts"})"), "'UnicodeScripts'"},
      {Json("post_processor", R"({"type":"T5Processing"})"), "'T5Processing'"},
      {Json("decoder", R"({"type":"CTC"})"), "'CTC'"},
      {Json("pre_tokenizer", Split("(a)\\\\1")), "\\1"},
      {Json("pre_tokenizer", Split("(?<n>a)")), "group"},
      {Json("pre_tokenizer", Split("\\\\p{Nope}")), "'Nope'"},
  };
  for (const auto& [text, want] : cases) {
    EXPECT_THAT(ErrorOf(text), HasSubstr(want));
    const auto tokenizer = Tokenizer::Parse(text);
    ASSERT_FALSE(tokenizer.has_value());
    EXPECT_EQ(tokenizer.error().code, ErrorCode::kUnsupported) << tokenizer.error().message;
  }
}

TEST(TokenizerTest, DamagedFilesSayWhere) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "tokenizer.json"},
      {"[]", "tokenizer.json"},
      {"{", "tokenizer.json"},
      {"{}", "'model' is missing"},
      {Json("model", "{}"), "'vocab' is missing"},
      {Json("model", R"({"type":"BPE","vocab":{"a":0}})"), "'merges' is missing"},
      {Json("model", R"({"type":"BPE","vocab":[],"merges":[]})"), "must be an object"},
      {Json("model", R"({"type":"BPE","vocab":{"a":0,"b":0},"merges":[]})"), "the same id 0"},
      {Json("model", R"({"type":"BPE","vocab":{"a":0,"a":1},"merges":[]})"), "stands twice"},
      {Json("model", R"({"type":"BPE","vocab":{"a":1000000000},"merges":[]})"),
       "whole number from 0"},
      {Json("model", R"({"type":"BPE","vocab":{"a":-1},"merges":[]})"), "whole number from 0"},
      {Json("model", R"({"type":"BPE","vocab":{"a":0.5},"merges":[]})"), "whole number from 0"},
      {Json("model", R"({"type":"BPE","vocab":{"a":0},"merges":["a b"]})"),
       "'b' is not in model.vocab"},
      {Json("model", R"({"type":"BPE","vocab":{"a":0,"b":1},"merges":[["a","b"]]})"),
       "'ab' is not in model.vocab"},
      {Json("model", R"({"type":"BPE","vocab":{"a":0,"b":1},"merges":["a"]})"), "model.merges[0]"},
      {Json("model", R"({"type":"BPE","vocab":{"a":0,"b":1},"merges":["a  b"]})"),
       "model.merges[0]"},
      {Json("model", R"({"type":"BPE","vocab":{"a":0,"b":1},"merges":[["a"]]})"), "two strings"},
      {Json("model", R"({"type":"BPE","vocab":{"a":0,"b":1},"merges":[7]})"), "model.merges[0]"},
      {Json("model", R"({"type":"BPE","vocab":{"a":0},"merges":[],"unk_token":"<unk>"})"),
       "unk_token"},
      {Json("model", R"({"type":"BPE","vocab":{"a":0},"merges":[],"fuse_unk":3})"), "fuse_unk"},
      {Json("added_tokens", R"([{"id":1000000000,"content":"x"}])"), "added_tokens[0]"},
      {Json("model", R"({"type":"BPE","vocab":{"a":4000000},"merges":[]})"), "whole number from 0"},
      {Json("added_tokens", R"([{"content":"x"}])"), "'id'"},
      {Json("added_tokens", R"([{"id":9}])"), "'content'"},
      {Json("added_tokens", R"({"id":9})"), "array"},
      {Json("normalizer", R"("NFC")"), "normalizer"},
      {Json("normalizer", R"({"type":"Strip","strip_left":1,"strip_right":true})"),
       "(Strip).strip_left"},
      {Json("normalizer", R"({"type":"Replace","pattern":{"Both":"a"},"content":""})"), "pattern"},
      {Json("pre_tokenizer",
            R"({"type":"Split","pattern":{"String":" "},"behavior":"Never","invert":false})"),
       R"("Never")"},
      {Json("pre_tokenizer", R"({"type":"Metaspace","replacement":"ab"})"), "one character"},
      {Json("decoder", R"({"type":"BPEDecoder","suffix":""})"), "(BPEDecoder).suffix must be"},
      {Json("pre_tokenizer", R"({"type":"Metaspace","replacement":"_","prepend_scheme":"some"})"),
       R"("some")"},
      {Json("post_processor", R"({"type":"TemplateProcessing","single":[],"special_tokens":{}})"),
       "sequence A once"},
      {Json(
           "post_processor",
           R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}},{"Sequence":{"id":"A"}}],)"
           R"("special_tokens":{"x":{"ids":[99]}}})"),
       "outside the vocabulary"},
      {Json("decoder", R"({"type":"Strip","content":"a","start":-1,"stop":0})"), "(Strip).start"},
      {R"({"version":"2.0"})", "version"},
  };
  for (const auto& [text, want] : cases) EXPECT_THAT(ErrorOf(text), HasSubstr(want)) << text;
}

TEST(TokenizerTest, DeepSequencesAreRefused) {
  std::string value = R"({"type":"NFC"})";
  for (int i = 0; i < 12; ++i) value = R"({"type":"Sequence","normalizers":[)" + value + "]}";
  EXPECT_THAT(ErrorOf(Json("normalizer", value)), HasSubstr("nested"));
}

TEST(TokenizerTest, PatternsThatBacktrackWithoutEndEnd) {
  const auto tokenizer = Tokenizer::Parse(Json("pre_tokenizer", Split("(a+)+$")));
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  EXPECT_FALSE((*tokenizer)->EncodeWithin(std::string(64, 'a') + "b", false).has_value());
  EXPECT_EQ((*tokenizer)->Encode(std::string(64, 'a') + "b", false).size(), 64u);
}

// The budget is for the whole text, not per match or step.
TEST(TokenizerTest, WorkOnATextIsBounded) {
  const std::string runs(20'000, 'a');
  std::string unigram, added;  // tokens with common prefixes
  for (int i = 1; i < 3000; i += 7) {
    const std::string text(static_cast<size_t>(i), 'a');
    unigram += ",[\"" + text + "x\",-1.0]";
    added +=
        (i == 1 ? "" : ",") + (R"({"id":)" + std::to_string(10 + i) + R"(,"content":")" + text +
                               R"(x","single_word":false,"lstrip":false,"rstrip":false,)"
                               R"("normalized":false,"special":false})");
  }
  const std::string sequence =
      R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"b"},)"
      R"("behavior":"Isolated","invert":false},{"type":"Split","pattern":{"Regex":"(?:a|aa)+c|a"},)"
      R"("behavior":"Isolated","invert":false}]})";
  std::string cut;  // pieces that would each stay within a budget of their own
  for (int i = 0; i < 1000; ++i) cut += std::string(16, 'a') + "b";
  const std::pair<std::string, std::string> cases[] = {
      {Json("pre_tokenizer", Split("a*b|a")), runs},
      {Json("pre_tokenizer", Split("a*[bc]|a")), runs},
      {Json("pre_tokenizer", Split("a*?b|a")), runs},
      {Json("pre_tokenizer", Split("(?:a|aa)+b|a")), runs},
      {Json("pre_tokenizer", Split("a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?[bc]")), runs},
      {Json("pre_tokenizer", Split("(?=a*b)|a")), runs},
      {Json("pre_tokenizer", Split("a{0,1000}a{0,1000}[bc]")), runs},
      {Json("pre_tokenizer", sequence), cut},
      {Json("normalizer", R"({"type":"Replace","pattern":{"Regex":"a*b|a"},"content":"c"})"), runs},
      {Json("added_tokens", "[" + added + "]"), runs},
      {R"({"version":"1.0","model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0.0])" + unigram +
           "]}}",
       runs},
      {R"({"version":"1.0","model":{"type":"WordPiece","unk_token":"[UNK]",)"
       R"("max_input_chars_per_word":1000000,"vocab":{"[UNK]":0,"a":1,"##a":2}}})",
       std::string(4000, 'a')},
  };
  for (const auto& [file, text] : cases) {
    const auto tokenizer = Tokenizer::Parse(file);
    ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message << file.substr(0, 300);
    const auto ids = (*tokenizer)->EncodeWithin(text, false);
    if (text == cut) {
      EXPECT_TRUE((*tokenizer)->EncodeWithin(text.substr(0, 17), false).has_value());
    }
    ASSERT_FALSE(ids.has_value()) << file.substr(0, 300);
    EXPECT_EQ(ids.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(ids.error().message, HasSubstr("takes more steps on this text"));
  }
}

TEST(TokenizerTest, LongRunsAreEncoded) {
  // Each of these inputs could take quadratic time: one long word, a long search pattern, marks
  // that must be sorted, and text that a decoder rewrites.
  const auto words = Tokenizer::Parse(Json("pre_tokenizer", Split("a*b|a+")));
  EXPECT_TRUE((*words)->EncodeWithin(std::string(1'000'000, 'a'), false).has_value());
  const auto searched =
      Tokenizer::Parse(Json("normalizer", R"({"type":"Replace","pattern":{"String":")" +
                                              std::string(5000, 'a') + R"(b"},"content":"c"})"));
  ASSERT_TRUE(searched.has_value());
  const std::clock_t start = std::clock();
  EXPECT_TRUE((*searched)->EncodeWithin(std::string(1'000'000, 'a'), false).has_value());
  std::string marks = "a";
  for (int i = 0; i < 300'000; ++i) marks += i % 2 == 0 ? "\u0301" : "\u0323";
  const auto composed = Tokenizer::Parse(Json("normalizer", R"({"type":"NFC"})"));
  EXPECT_TRUE((*composed)->EncodeWithin(marks, false).has_value());
  const auto spaced = Tokenizer::Parse(
      Json("decoder", R"({"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Metaspace",)"
                      R"("replacement":"a","add_prefix_space":false}]})"));
  ASSERT_TRUE(spaced.has_value());
  const std::vector<int32_t> ids((*spaced)->Encode(std::string(1'000'000, 'a'), false));
  EXPECT_GT((*spaced)->Decode(ids, false).size(), 900'000u);
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 120);
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    path_ =
        std::filesystem::temp_directory_path() / ("sluice_tokenizer_" + std::to_string(::getpid()));
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  void Write(const char* name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST(TokenizerTest, ReadsTheFilesBeside) {
  const TemporaryFolder folder;
  folder.Write("tokenizer.json", Json("", ""));
  folder.Write(
      "tokenizer_config.json",
      R"({"bos_token":{"content":"<s>"},"eos_token":"</s>","unk_token":null,"chat_template":"hi",)"
      R"("added_tokens_decoder":{"4":{"content":"<s>","special":true},"2":{"content":"ab","special":false}}})");
  folder.Write("special_tokens_map.json",
               R"({"eos_token":"other","pad_token":"<pad>","unk_token":"<u>"})");
  const auto tokenizer = Tokenizer::Load(folder.path());
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->bos_token(), "<s>");
  EXPECT_EQ((*tokenizer)->eos_token(), "</s>");
  EXPECT_EQ((*tokenizer)->pad_token(), "<pad>");
  EXPECT_EQ((*tokenizer)->unk_token(), std::nullopt);
  EXPECT_EQ((*tokenizer)->config().Find("chat_template")->as_string(), "hi");
  EXPECT_THAT((*tokenizer)->Encode("a<s>ab", false), ElementsAre(0, 4, 2));
  EXPECT_EQ((*tokenizer)->vocab_size(), 5);
}

TEST(TokenizerTest, SaysWhereATokenizerComesFromWhereThereIsNone) {
  const TemporaryFolder folder;
  const auto nothing = Tokenizer::Load(folder.path());
  EXPECT_EQ(nothing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(nothing.error().message,
              HasSubstr("has no tokenizer.json: write it with transformers"));
  folder.Write("tokenizer.model", "sentences");
  EXPECT_THAT(Tokenizer::Load(folder.path()).error().message,
              HasSubstr("has no tokenizer.json, and tokenizer.model is not read: "));
  std::filesystem::create_symlink("nowhere", folder.path() / "tokenizer.json");
  EXPECT_THAT(Tokenizer::Load(folder.path()).error().message, HasSubstr("it is a link to nowhere"));
}

// Tokens are numbered from the vocabulary's size on, regardless of the ids in the file.
TEST(TokenizerTest, AddedTokensAreNumberedAsTheLibraryDoes) {
  for (const char* ids : {"0,0", "4,4", "4,5", "4000000,7"}) {
    const std::string first(ids, std::string_view(ids).find(','));
    const std::string second(ids + first.size() + 1);
    const auto tokenizer = Tokenizer::Parse(
        Json("added_tokens", R"([{"id":)" + first + R"(,"content":"<x>"},{"id":)" + second +
                                 R"(,"content":"<y>"},{"id":3,"content":"ab"}])"));
    ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
    EXPECT_THAT((*tokenizer)->Encode("a<x>b<y>ab", false), ElementsAre(0, 4, 1, 5, 2)) << ids;
    EXPECT_EQ((*tokenizer)->vocab_size(), 6) << ids;
    EXPECT_EQ((*tokenizer)->IdToToken(5), "<y>") << ids;
  }
}

TEST(TokenizerTest, RefusesFilesOfDifferentModels) {
  const TemporaryFolder folder;
  folder.Write("tokenizer.json", Json("", ""));
  folder.Write("tokenizer_config.json", R"({"added_tokens_decoder":{"1":{"content":"ab"}}})");
  EXPECT_THAT(Tokenizer::Load(folder.path()).error().message, HasSubstr("'ab' has id 2"));
  folder.Write("tokenizer_config.json", R"({"added_tokens_decoder":{"1":{"content":"new"}}})");
  EXPECT_THAT(Tokenizer::Load(folder.path()).error().message, HasSubstr("'b' in model.vocab"));
  folder.Write("tokenizer_config.json", "[]");
  EXPECT_THAT(Tokenizer::Load(folder.path()).error().message, HasSubstr("must be an object"));
}

TEST(TokenizeToolTest, LinesInLinesOut) {
  const auto tokenizer = Tokenizer::Load(kLlamaLike);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  std::istringstream texts(
      "{\"text\":\"a\\u2028\\ud83d\\ude00\",\"add_special_tokens\":false}\n\n{\"text\":\"\"}\n");
  std::ostringstream ids;
  ASSERT_TRUE(RunTokenize(**tokenizer, false, texts, ids).has_value());
  EXPECT_THAT(ids.str(), HasSubstr("\n{\"ids\":[1700]}\n"));
  std::istringstream back(ids.str());
  std::ostringstream decoded;
  ASSERT_TRUE(RunTokenize(**tokenizer, true, back, decoded).has_value());
  EXPECT_EQ(decoded.str(), "{\"text\":\"a\\u2028\\ud83d\\ude00\"}\n{\"text\":\"\"}\n");
  std::istringstream bad("{\"text\":\"a\"}\n{\"text\":7}\n");
  const Status status = RunTokenize(**tokenizer, false, bad, ids);
  ASSERT_FALSE(status.has_value());
  EXPECT_THAT(status.error().message, HasSubstr("line 2: 'text' must be a string"));
  for (const bool decode : {false, true}) {
    std::istringstream word("Hello\n");
    const Status said = RunTokenize(**tokenizer, decode, word, ids);
    ASSERT_FALSE(said.has_value());
    EXPECT_THAT(
        said.error().message,
        ::testing::AllOf(HasSubstr(decode ? R"(as {"ids": [1, 2]})" : R"(as {"text": "Hello"})"),
                         HasSubstr("found Hello")));
  }
}

}  // namespace
}  // namespace sluice
