#include "hub/model_files.h"

#include <unistd.h>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ModelFilesTest, ChoosesWhatIsRead) {
  const std::vector<std::string> files = {".gitattributes",
                                          "LICENSE",
                                          "README.md",
                                          "additional_chat_templates/rag.jinja",
                                          "additional_chat_templates/deep/x.jinja",
                                          "chat_template.jinja",
                                          "config.json",
                                          "generation_config.json",
                                          "merges.txt",
                                          "model-00001-of-00002.safetensors",
                                          "model.safetensors.index.json",
                                          "onnx/model.onnx",
                                          "original/config.json",
                                          "pytorch_model.bin",
                                          "tokenizer.json",
                                          "vocab.json"};
  EXPECT_THAT(
      ChooseFiles(files, ModelPart::kAll),
      ElementsAre("config.json", "additional_chat_templates/rag.jinja", "chat_template.jinja",
                  "generation_config.json", "model.safetensors.index.json", "tokenizer.json"));
  EXPECT_THAT(
      ChooseFiles(files, ModelPart::kTokenizer),
      ElementsAre("additional_chat_templates/rag.jinja", "chat_template.jinja", "tokenizer.json"));
  EXPECT_THAT(ChooseFiles(files, ModelPart::kGenerationConfig),
              ElementsAre("generation_config.json"));
}

TEST(ModelFilesTest, MistralsOwnFormat) {
  const std::vector<std::string> own = {"README.md",
                                        "consolidated-00001-of-00002.safetensors",
                                        "consolidated-00002-of-00002.safetensors",
                                        "consolidated.safetensors.index.json",
                                        "params.json",
                                        "tekken.json"};
  EXPECT_THAT(ChooseFiles(own, ModelPart::kAll),
              ElementsAre("params.json", "consolidated.safetensors.index.json", "tekken.json"));
  EXPECT_THAT(ChooseFiles(own, ModelPart::kTokenizer), ElementsAre("tekken.json"));
  EXPECT_THAT(UnindexedWeights(own), ElementsAre("consolidated-00001-of-00002.safetensors",
                                                 "consolidated-00002-of-00002.safetensors"));
  // If a repository has both formats, Hugging Face's is preferred.
  std::vector<std::string> both = own;
  both.insert(both.end(), {"config.json", "model.safetensors", "tokenizer.json"});
  EXPECT_THAT(ChooseFiles(both, ModelPart::kAll), ElementsAre("config.json", "tokenizer.json"));
  EXPECT_THAT(UnindexedWeights(both), ElementsAre("model.safetensors"));
  // A repository may have only its tokenizer in Mistral's format.
  EXPECT_THAT(ChooseFiles({"config.json", "model.safetensors", "params.json", "tekken.json"},
                          ModelPart::kAll),
              ElementsAre("config.json", "tekken.json"));
}

TEST(ModelFilesTest, HowImagesAreProcessed) {
  EXPECT_THAT(ChooseFiles({"README.md", "config.json", "preprocessor_config.json",
                           "processor_config.json", "video_preprocessor_config.json"},
                          ModelPart::kAllButWeights),
              ElementsAre("config.json", "preprocessor_config.json", "processor_config.json"));
}

TEST(ModelFilesTest, HowSentencesBecomeVectors) {
  EXPECT_THAT(ChooseFiles({"1_Pooling/config.json", "2_Dense/model.safetensors", "README.md",
                           "modules.json", "sentence_bert_config.json", "onnx/config.json"},
                          ModelPart::kAllButWeights),
              ElementsAre("1_Pooling/config.json", "modules.json", "sentence_bert_config.json"));
  EXPECT_THAT(ChooseFiles({"2_Dense/config.json", "2_Dense/model.safetensors",
                           "2_Dense/pytorch_model.bin", "onnx/2_Dense/model.safetensors"},
                          ModelPart::kAll),
              ElementsAre("2_Dense/config.json", "2_Dense/model.safetensors"));
}

TEST(ModelFilesTest, WeightsWithoutAnIndex) {
  EXPECT_THAT(UnindexedWeights({"model-00002-of-00002.safetensors", "x.safetensors",
                                "model-00001-of-00002.safetensors"}),
              ElementsAre("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"));
  EXPECT_THAT(UnindexedWeights({"model-00001-of-00001.safetensors", "model.safetensors"}),
              ElementsAre("model.safetensors"));
  EXPECT_THAT(UnindexedWeights({"consolidated.safetensors", "model-1-of-2.safetensors",
                                "model-0000a-of-00002.safetensors"}),
              IsEmpty());
}

TEST(ModelFilesTest, ReadsAnIndex) {
  EXPECT_THAT(ShardsOfIndex(R"({"weight_map":{"a":"y.safetensors","b":"x.safetensors",)"
                            R"("c":"x.safetensors"}})")
                  .value(),
              ElementsAre("x.safetensors", "y.safetensors"));
  for (const char* text :
       {"", "<html>", "[]", "{}", R"({"weight_map":{}})", R"({"weight_map":{"a":1}})",
        R"({"weight_map":{"a":"../x"}})", R"({"weight_map":{"a":"b/c"}})",
        R"({"weight_map":{"a":".."}})", R"({"weight_map":{"a":"/x"}})"}) {
    const auto shards = ShardsOfIndex(text);
    ASSERT_FALSE(shards) << text;
    EXPECT_THAT(shards.error().message, HasSubstr("index of safetensors")) << text;
  }
}

TEST(ModelFilesTest, PathsStayBelow) {
  for (const char* path : {"a", "a/b.json", "..a", "a..b/c"}) EXPECT_TRUE(IsSafePath(path)) << path;
  for (const char* path :
       {"", "/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/./b", "a\nb", "a\\b"})
    EXPECT_FALSE(IsSafePath(path)) << path;
}

class MissingFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("sluice_missing_" + std::to_string(getpid()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Add(const std::string& name, const std::string& text = "{}") {
    std::ofstream(folder_ / name) << text;
  }
  std::vector<std::string> Missing(ModelPart part = ModelPart::kAll) {
    return MissingFiles(folder_, part);
  }

  std::filesystem::path folder_;
};

TEST_F(MissingFilesTest, NamesWhatIsNeeded) {
  EXPECT_THAT(Missing(), ElementsAre("config.json", "tokenizer.json", "model.safetensors"));
  EXPECT_THAT(Missing(ModelPart::kAllButWeights), ElementsAre("config.json", "tokenizer.json"));
  EXPECT_THAT(Missing(ModelPart::kGenerationConfig), ElementsAre("generation_config.json"));
  Add("tokenizer.json");
  EXPECT_THAT(Missing(ModelPart::kTokenizer), IsEmpty());
  Add("config.json");
  Add("model-00002-of-00003.safetensors");
  EXPECT_THAT(Missing(),
              ElementsAre("model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"));
  Add("model.safetensors.index.json",
      R"({"weight_map":{"a":"p.safetensors","b":"q.safetensors"}})");
  Add("p.safetensors");
  EXPECT_THAT(Missing(), ElementsAre("q.safetensors"));
  std::filesystem::create_symlink("nowhere", folder_ / "q.safetensors");
  EXPECT_THAT(Missing(), ElementsAre("q.safetensors"));
  std::filesystem::remove(folder_ / "q.safetensors");
  Add("q.safetensors");
  EXPECT_THAT(Missing(), IsEmpty());
}

}  // namespace
}  // namespace sluice
