#include "bench/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/base64.h"
#include "base/file.h"
#include "base/json.h"
#include "base/source_path_testing.h"

namespace sluice::bench {
namespace {

using namespace std::string_literals;
using ::testing::HasSubstr;
using ::testing::SizeIs;

const Tokenizer& TokenizerOf(const std::string& name) {
  static std::map<std::string, std::unique_ptr<Tokenizer>> loaded;
  auto& tokenizer = loaded[name];
  if (tokenizer == nullptr) {
    tokenizer = *Tokenizer::Load(SourcePath("tests/data/tokenizers/") + name);
  }
  return *tokenizer;
}

const Tokenizer& Llama3() {
  return TokenizerOf("v03_llama3_ignore_merges_bos");
}

class DatasetFile {
 public:
  explicit DatasetFile(const std::string& text) {
    path_ = std::filesystem::temp_directory_path() /
            ("bench_dataset_test_" + std::to_string(getpid()) + "_" + std::to_string(++count_));
    std::ofstream(path_) << text;
  }
  ~DatasetFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  static inline int count_ = 0;
  std::filesystem::path path_;
};

std::string ErrorOf(const DatasetOptions& options) {
  const auto data = MakeDataset(options, &Llama3());
  return data ? "" : data.error().message;
}

// With any vocabulary, the prompt has exactly the requested number of tokens.
TEST(RandomDataset, HasExactlyTheTokensAskedFor) {
  for (const char* name : {"v01_gpt2_bytelevel", "v03_llama3_ignore_merges_bos", "v05_qwen_nfc",
                           "v08_digits_individual_starcoder", "v11_spm_llama2_prepend_bytefallback",
                           "v13_gemma_style", "v14_bos_eos_template"}) {
    const Tokenizer& tokenizer = TokenizerOf(name);
    const auto data =
        MakeDataset({.num_prompts = 20, .seed = 5, .input_len = 50, .prefix_len = 7}, &tokenizer);
    ASSERT_TRUE(data);
    for (const Prompt& prompt : data->prompts) {
      EXPECT_EQ(tokenizer.Encode(prompt.text, true).size(), 57u) << name;
      EXPECT_EQ(prompt.output_tokens, 128);
    }
  }
}

// Expected values: vLLM 0.33 with seed 5. Where vLLM's own method reaches the requested length, the
// texts are identical.
TEST(RandomDataset, IsVllmsForTheSameSeed) {
  const auto data = MakeDataset({.num_prompts = 12, .seed = 5, .input_len = 40}, &Llama3());
  ASSERT_TRUE(data);
  const auto expected =
      json::Parse(*ReadFile(SourcePath("tests/data/bench/vllm_random_prompts.json")));
  ASSERT_TRUE(expected);
  const auto& prompts = expected->as_array();
  ASSERT_EQ(prompts.size(), 12u);
  int equal = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::string& theirs = prompts[i].as_string();
    if (Llama3().Encode(theirs, true).size() != 40) continue;
    EXPECT_EQ(data->prompts[i].text, theirs) << i;
    ++equal;
  }
  EXPECT_GE(equal, 6);
}

TEST(RandomDataset, LengthsStayInTheirRangeAndDependOnTheSeed) {
  DatasetOptions options{.num_prompts = 200,
                         .seed = 1,
                         .input_len = 40,
                         .input_range_ratio = 0.5,
                         .output_range_ratio = 0.25};
  options.output_len = 8;
  std::multiset<int64_t> inputs;
  const Dataset data = *MakeDataset(options, &Llama3());
  for (const Prompt& prompt : data.prompts) {
    EXPECT_GE(prompt.prompt_tokens, 19);
    EXPECT_LE(prompt.prompt_tokens, 59);
    EXPECT_GE(prompt.output_tokens, 6);
    EXPECT_LE(prompt.output_tokens, 10);
    inputs.insert(prompt.prompt_tokens);
  }
  EXPECT_GT(std::set(inputs.begin(), inputs.end()).size(), 20u);
  options.seed = 2;
  std::multiset<int64_t> others;
  const Dataset other_data = *MakeDataset(options, &Llama3());
  for (const Prompt& prompt : other_data.prompts) others.insert(prompt.prompt_tokens);
  EXPECT_NE(inputs, others);
}

TEST(RandomDataset, AsIdsIsOfTheFullLength) {
  const auto data = MakeDataset(
      {.num_prompts = 3, .input_len = 33, .prefix_len = 4, .send_ids = true}, &Llama3());
  ASSERT_TRUE(data);
  for (const Prompt& prompt : data->prompts) {
    EXPECT_THAT(prompt.ids, SizeIs(37));
    EXPECT_TRUE(
        std::equal(prompt.ids.begin(), prompt.ids.begin() + 4, data->prompts[0].ids.begin()));
  }
  EXPECT_NE(data->prompts[0].ids, data->prompts[1].ids);
}

TEST(RandomDataset, Refusals) {
  EXPECT_THAT(ErrorOf({.input_len = 40, .input_range_ratio = 1.0}), HasSubstr("below 1"));
  EXPECT_THAT(ErrorOf({.input_len = 1}), HasSubstr("--random-input-len"));
  EXPECT_THAT(MakeDataset({}, nullptr).error().message, HasSubstr("tokenizer"));
}

TEST(ShareGpt, TakesFirstQuestionsAndTheLengthOfTheirAnswers) {
  const DatasetFile file(R"([
    {"conversations": [{"from": "human", "value": "one two three four"},
                       {"from": "gpt", "value": "five six seven eight nine"}]},
    {"conversations": [{"value": "alone"}]},
    {"conversations": [{"value": "x"}, {"value": "too short a question"}]}])");
  DatasetOptions options{
      .kind = DatasetOptions::Kind::kShareGpt, .path = file.path(), .num_prompts = 3};
  const auto data = MakeDataset(options, &Llama3());
  ASSERT_TRUE(data) << data.error().message;
  ASSERT_THAT(data->prompts, SizeIs(3));  // repeated up to the requested number
  for (const Prompt& prompt : data->prompts) {
    EXPECT_EQ(prompt.text, "one two three four");
    EXPECT_EQ(prompt.output_tokens,
              static_cast<int64_t>(Llama3().Encode("five six seven eight nine", true).size()));
  }
  options.oversample = false;
  EXPECT_THAT(MakeDataset(options, &Llama3())->prompts, SizeIs(1));
  options.output_len = 9;
  EXPECT_EQ(MakeDataset(options, &Llama3())->prompts[0].output_tokens, 9);
}

TEST(RandomDataset, OfAFilesText) {
  const DatasetFile file(
      R"([{"conversations": [{"value": "one two three four five six"}, {"value": "x"}]}])");
  DatasetOptions options{.path = file.path(), .num_prompts = 2, .input_len = 40};
  auto data = MakeDataset(options, &Llama3());
  ASSERT_TRUE(data) << data.error().message;
  for (const Prompt& prompt : data->prompts) {
    EXPECT_EQ(Llama3().Encode(prompt.text, true).size(), 40u);
    EXPECT_THAT(prompt.text, HasSubstr("one two"));
  }
  options.send_ids = true;
  data = MakeDataset(options, &Llama3());
  EXPECT_THAT(data->prompts[0].ids, SizeIs(40));
  options.images = RandomImageOptions{.base_items = 2, .buckets = {{8, 8, 1}}};
  const auto seeing = MakeDataset(options, &Llama3());
  ASSERT_TRUE(seeing) << seeing.error().message;
  for (const Prompt& prompt : seeing->prompts) EXPECT_THAT(prompt.images, SizeIs(2));
}

TEST(ShareGpt, DamagedFiles) {
  for (const char* text : {"{", "{}", "[]", R"([{"conversations": 3}])"}) {
    const DatasetFile file(text);
    EXPECT_THAT(ErrorOf({.kind = DatasetOptions::Kind::kShareGpt, .path = file.path()}),
                HasSubstr("--dataset-path"));
  }
  EXPECT_THAT(ErrorOf({.kind = DatasetOptions::Kind::kShareGpt}), HasSubstr("--dataset-path FILE"));
}

TEST(Custom, LinesInOrderWithTheirLengths) {
  const DatasetFile file("{\"prompt\": \"a b\", \"output_tokens\": 3}\n\n{\"prompt\": \"c\"}\n");
  DatasetOptions options{.kind = DatasetOptions::Kind::kCustom,
                         .path = file.path(),
                         .num_prompts = 2,
                         .shuffle = false};
  options.output_len = 20;
  auto data = MakeDataset(options, &Llama3());
  ASSERT_TRUE(data);
  EXPECT_EQ(data->prompts[0].text, "a b");
  EXPECT_EQ(data->prompts[1].output_tokens, 20);
  options.output_len = -1;
  EXPECT_THAT(ErrorOf(options), HasSubstr(":3: expected a whole number"));
  options.num_prompts = 1;
  EXPECT_EQ(MakeDataset(options, nullptr)->prompts[0].output_tokens, 3);
  options.apply_chat_template = [](const std::string& text) -> Result<std::string> {
    return "<" + text + ">";
  };
  EXPECT_EQ(MakeDataset(options, &Llama3())->prompts[0].text, "<a b>");
}

TEST(Custom, DamagedLinesAreNamed) {
  const DatasetFile file("{\"prompt\": \"a\"}\n{\"text\": 1}\n");
  EXPECT_THAT(ErrorOf({.kind = DatasetOptions::Kind::kCustom, .path = file.path()}),
              HasSubstr(":2: expected an object"));
}

TEST(CustomImages, AreSentAsUrls) {
  const std::string dot = "BM\x3a\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\1\0\0\0\1\0\0\0\1\0\x18\0"s +
                          std::string(24, '\0') + "\1\2\3\0"s;
  const DatasetFile image(dot), text("no image");
  const auto file_of = [](const std::string& files) {
    return DatasetFile(R"({"prompt":"a","output_tokens":2,"image_files":)" + files + "}\n");
  };
  DatasetOptions options{.kind = DatasetOptions::Kind::kCustom, .num_prompts = 1};
  options.reads_images = true;
  const DatasetFile good = file_of("[\"" + image.path() + "\",\"https://a/b.png\"]");
  options.path = good.path();
  const auto data = MakeDataset(options, &Llama3());
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(
      data->prompts[0].images,
      (std::vector<std::string>{"data:image/bmp;base64," + EncodeBase64(dot), "https://a/b.png"}));
  for (const auto& [files, what] :
       std::map<std::string, std::string>{{"\"a.png\"", ":1: expected a list \"image_files\""},
                                          {"[5]", "expected paths or URLs"},
                                          {"[\"/no/such.png\"]", ":1: /no/such.png: "},
                                          {"[\"" + text.path() + "\"]", "expected a PNG"}}) {
    const DatasetFile bad = file_of(files);
    options.path = bad.path();
    EXPECT_THAT(ErrorOf(options), HasSubstr(what));
  }
}

TEST(Sonnet, PromptsShareTheirBeginningAndKeepTheirLength) {
  DatasetOptions options{.kind = DatasetOptions::Kind::kSonnet,
                         .num_prompts = 10,
                         .input_len = 550,
                         .prefix_len = 300};
  const auto data = MakeDataset(options, &Llama3());
  ASSERT_TRUE(data) << data.error().message;
  ASSERT_THAT(data->prompts, SizeIs(10));
  for (const Prompt& prompt : data->prompts) {
    EXPECT_LE(prompt.prompt_tokens, 550);
    EXPECT_GT(prompt.prompt_tokens, 400);
    EXPECT_EQ(prompt.text.substr(0, 200), data->prompts[0].text.substr(0, 200));
  }
  EXPECT_NE(data->prompts[0].text, data->prompts[1].text);
  options.input_len = 5;
  EXPECT_THAT(ErrorOf(options), HasSubstr("--sonnet-input-len"));
}

TEST(PrefixRepetition, FewBeginnings) {
  DatasetOptions options{.kind = DatasetOptions::Kind::kPrefixRepetition,
                         .num_prompts = 12,
                         .input_len = 16,
                         .prefix_len = 32,
                         .num_prefixes = 3};
  const auto data = MakeDataset(options, &Llama3());
  ASSERT_TRUE(data);
  ASSERT_THAT(data->prompts, SizeIs(12));
  std::set<std::string> beginnings;
  for (const Prompt& prompt : data->prompts) {
    EXPECT_EQ(prompt.prompt_tokens, 48);
    beginnings.insert(prompt.text.substr(0, 16));
  }
  EXPECT_EQ(beginnings.size(), 3u);
  options.num_prompts = 2;
  EXPECT_THAT(ErrorOf(options), HasSubstr("--prefix-repetition-num-prefixes"));
}

}  // namespace
}  // namespace sluice::bench
