#include "checkpoint/sentence_transformers.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class SentenceTransformersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "1_Pooling");
  }
  void TearDown() override { fs::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }
  void WriteModules(const std::string& more = "") {
    Write("modules.json", R"([{"path":"","type":"sentence_transformers.models.Transformer"},)"
                          R"({"path":"1_Pooling","type":"sentence_transformers.models.Pooling"})" +
                              more + "]");
  }
  std::string Problem() {
    const auto config = LoadSentenceTransformersConfig(folder_);
    return config ? "" : config.error().message;
  }

  fs::path folder_;
};

TEST_F(SentenceTransformersTest, AFolderWithoutModulesIsNone) {
  const auto config = LoadSentenceTransformersConfig(folder_);
  ASSERT_TRUE(config);
  EXPECT_FALSE(config->has_value());
}

TEST_F(SentenceTransformersTest, ReadsAllFiles) {
  WriteModules(R"(,{"path":"2_Normalize","type":"sentence_transformers.models.Normalize"})");
  Write("1_Pooling/config.json",
        R"({"word_embedding_dimension":8,"pooling_mode_mean_tokens":false,)"
        R"("pooling_mode_lasttoken":true})");
  Write("sentence_bert_config.json", R"({"max_seq_length":128,"do_lower_case":true})");
  Write("config_sentence_transformers.json",
        R"({"prompts":{"query":"find: "},"default_prompt_name":"query"})");
  const auto config = LoadSentenceTransformersConfig(folder_);
  ASSERT_TRUE(config && *config) << Problem();
  EXPECT_EQ((*config)->method, PoolingMethod::kLast);
  EXPECT_TRUE((*config)->normalize);
  EXPECT_EQ((*config)->max_tokens, 128);
  EXPECT_TRUE((*config)->lower_case);
  EXPECT_EQ((*config)->prompt, "find: ");
}

TEST_F(SentenceTransformersTest, NewFilesNameTheWayOfPooling) {
  WriteModules();
  Write("1_Pooling/config.json", R"({"pooling_mode":"cls"})");
  const auto config = LoadSentenceTransformersConfig(folder_);
  ASSERT_TRUE(config && *config) << Problem();
  EXPECT_EQ((*config)->method, PoolingMethod::kCls);
  EXPECT_FALSE((*config)->normalize);
}

// Since release 6, only the tokenizer's file has the limit.
TEST_F(SentenceTransformersTest, TheTokenizersLimitStandsIn) {
  WriteModules();
  Write("1_Pooling/config.json", R"({"pooling_mode":"mean"})");
  const auto limit = [&] {
    const auto config = LoadSentenceTransformersConfig(folder_);
    EXPECT_TRUE(config && *config) << Problem();
    return config && *config ? (*config)->max_tokens : std::nullopt;
  };
  EXPECT_EQ(limit(), std::nullopt);
  Write("tokenizer_config.json", R"({"model_max_length":100})");
  EXPECT_EQ(limit(), 100);
  Write("sentence_bert_config.json", R"({"transformer_task":"feature-extraction"})");
  EXPECT_EQ(limit(), 100);
  Write("sentence_bert_config.json", R"({"max_seq_length":7})");
  EXPECT_EQ(limit(), 7);
  Write("sentence_bert_config.json", R"({"max_seq_length":null})");
  // Written by transformers if there is no limit.
  Write("tokenizer_config.json", R"({"model_max_length":1000000000000000019884624838656})");
  EXPECT_EQ(limit(), std::nullopt);
  Write("tokenizer_config.json", R"({"model_max_length":"long"})");
  EXPECT_THAT(Problem(), HasSubstr("tokenizer_config.json: model_max_length"));
}

TEST_F(SentenceTransformersTest, RefusesByName) {
  WriteModules();
  Write("1_Pooling/config.json", R"({"pooling_mode_max_tokens":true})");
  EXPECT_THAT(Problem(), HasSubstr("'max'"));
  Write("1_Pooling/config.json",
        R"({"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":true})");
  EXPECT_THAT(Problem(), HasSubstr("2 pooling modes"));
  Write("1_Pooling/config.json", R"({"pooling_mode":"mean","include_prompt":false})");
  EXPECT_THAT(Problem(), HasSubstr("include_prompt"));
  Write("1_Pooling/config.json", R"({"pooling_mode":"mean"})");
  WriteModules(R"(,{"path":"2_LayerNorm","type":"sentence_transformers.models.LayerNorm"})");
  EXPECT_THAT(Problem(), HasSubstr("LayerNorm"));
  WriteModules();
  Write("config_sentence_transformers.json", R"({"default_prompt_name":"query"})");
  EXPECT_THAT(Problem(), HasSubstr("'query'"));
  Write("modules.json", "{}");
  EXPECT_THAT(Problem(), HasSubstr("must be a list"));
  Write("modules.json", "[");
  EXPECT_THAT(Problem(), HasSubstr("modules.json"));
}

TEST_F(SentenceTransformersTest, ReadsDenseModules) {
  fs::create_directories(folder_ / "2_Dense");
  fs::create_directories(folder_ / "3_Dense");
  const char* const modules = R"(,{"path":"2_Dense","type":"sentence_transformers.models.Dense"},)"
                              R"({"path":"3_Dense","type":"sentence_transformers.models.Dense"},)"
                              R"({"path":"4_Normalize","type":"x.Normalize"})";
  WriteModules(modules);
  Write("1_Pooling/config.json", R"({"pooling_mode":"mean"})");
  Write("2_Dense/config.json", R"({"in_features":8,"out_features":12})");
  Write("3_Dense/config.json", R"({"in_features":12,"out_features":4,"bias":false,)"
                               R"("activation_function":"torch.nn.modules.linear.Identity"})");
  const auto config = LoadSentenceTransformersConfig(folder_);
  ASSERT_TRUE(config && *config) << Problem();
  EXPECT_TRUE((*config)->normalize);
  const std::vector<DenseModule>& dense = (*config)->dense;
  ASSERT_EQ(dense.size(), 2u);
  EXPECT_EQ(dense[0].folder, "2_Dense");
  EXPECT_TRUE(dense[0].has_bias);
  EXPECT_EQ(dense[0].activation, DenseActivation::kTanh);
  EXPECT_EQ(dense[1].in_features, 12);
  EXPECT_EQ(dense[1].out_features, 4);
  EXPECT_FALSE(dense[1].has_bias);
  EXPECT_EQ(dense[1].activation, DenseActivation::kIdentity);

  const std::pair<const char*, const char*> refused[] = {
      {R"({"in_features":8})", "out_features"},
      {R"({"in_features":0,"out_features":4})", "in_features"},
      {R"({"in_features":8,"out_features":4})",
       "expected 12, the out_features of 2_Dense, found 8"},
      {R"({"in_features":12,"out_features":4,"activation_function":"mine.Swish"})", "'mine.Swish'"},
      {R"({"in_features":12,"out_features":4,"module_input_name":"token_embeddings"})",
       "module_input_name 'token_embeddings'"},
      {R"({"in_features":12,"out_features":4,"use_residual":true})", "use_residual"}};
  for (const auto& [text, words] : refused) {
    Write("3_Dense/config.json", text);
    EXPECT_THAT(Problem(), HasSubstr(words)) << text;
  }
  Write("modules.json", R"([{"path":"2_Dense","type":"x.Dense"}])");
  EXPECT_THAT(Problem(), HasSubstr("'x.Dense' is not supported at this position"));
}

// A path that leads outside the folder must not reveal anything about this machine.
TEST_F(SentenceTransformersTest, StaysInItsFolder) {
  Write("modules.json", R"([{"path":"../..","type":"x.Pooling"}])");
  EXPECT_NE(Problem(), "");
}

}  // namespace
}  // namespace sluice
