#include <cmath>
#include <ctime>
#include <functional>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_testing.h"
#include "kernels/linear.h"
#include "models/checkpoint_copy_testing.h"
#include "models/model_testing.h"
#include "models/registry.h"
#include "models/weight_loader.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using testing::CheckpointCopy;
using testing::DataFolder;
using ::testing::HasSubstr;
using testing::LoadedWeightBytes;
using testing::LogitRows;
using testing::MakeSafetensors;
using testing::Runner;
using testing::SmallOptions;
using testing::TemporaryFolder;
using testing::TestTensor;
using testing::WriteFile;

const std::vector<int32_t> kTokens = {5, 17, 300, 42, 9, 9, 501, 0, 77, 128};

uint16_t FloatToHalf(float value) {  // exact for the values used here; others are truncated
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const int exponent = static_cast<int>(bits >> 23 & 0xFF) - 112;
  if (exponent <= 0) return static_cast<uint16_t>(bits >> 16 & 0x8000);
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | static_cast<uint32_t>(exponent) << 10 |
                               (bits >> 13 & 0x3FF));
}

// Converts BF16 data to another type.
std::string ConvertData(const std::string& bf16, ElementType type) {
  std::string result;
  for (size_t i = 0; i < bf16.size(); i += 2) {
    uint16_t bits;
    std::memcpy(&bits, bf16.data() + i, 2);
    const float value = ToFloat(BFloat16{bits});
    const uint16_t half = FloatToHalf(value);
    if (type == ElementType::kF32)
      result.append(reinterpret_cast<const char*>(&value), 4);
    else
      result.append(reinterpret_cast<const char*>(&half), 2);
  }
  return result;
}

TEST(LoadingTest, OtherTypesOfTheSameNumbersGiveTheSameLogits) {
  for (const ElementType compute : {ElementType::kBF16, ElementType::kF32}) {
    const auto options = SmallOptions(compute, compute);
    const LogitRows expected =
        Runner(DataFolder("llama-tied-bf16-sharded"), options, 2).RunAlone(kTokens, 4);
    CheckpointCopy copy("llama-tied-bf16-sharded");
    for (TestTensor& tensor : copy.tensors()) {
      tensor.data = ConvertData(tensor.data, ElementType::kF32);
      tensor.dtype = "F32";
    }
    copy.config().Set("dtype", "float32");
    const LogitRows got = Runner(copy.Write(), options, 2).RunAlone(kTokens, 4);
    if (compute == ElementType::kBF16) {
      EXPECT_TRUE(got == expected);  // the same weights in memory
      continue;
    }
    double worst = 0;
    for (size_t row = 0; row < got.size(); ++row) {
      for (size_t i = 0; i < got[row].size(); ++i)
        worst = std::max(worst, double{std::fabs(got[row][i] - expected[row][i])});
    }
    EXPECT_LT(worst, 1e-4);
  }
}

TEST(LoadingTest, HalfPrecisionIsReadAndMixedTypesToo) {
  const auto options = SmallOptions(ElementType::kF32, ElementType::kF32);
  CheckpointCopy copy("llama-tied-bf16-sharded");
  // The tensors are filled with numbers that both types represent exactly: the smallest normal half
  // is 2^-14.
  for (TestTensor& tensor : copy.tensors()) {
    for (size_t i = 0; i < tensor.data.size(); i += 2) {
      uint16_t bits;
      std::memcpy(&bits, tensor.data.data() + i, 2);
      if (std::fabs(ToFloat(BFloat16{bits})) < 0x1p-14f) std::memset(tensor.data.data() + i, 0, 2);
    }
  }
  const LogitRows expected = Runner(copy.Write(), options, 1).RunAlone(kTokens, 10);
  size_t count = 0;
  for (TestTensor& tensor : copy.tensors()) {
    if (++count % 3 == 0) continue;  // this tensor stays BF16
    tensor.data = ConvertData(tensor.data, count % 3 == 1 ? ElementType::kF16 : ElementType::kF32);
    tensor.dtype = count % 3 == 1 ? "F16" : "F32";
  }
  copy.config().Set("dtype", "float16");
  const LogitRows got = Runner(copy.Write(), options, 1).RunAlone(kTokens, 10);
  for (size_t row = 0; row < got.size(); ++row) {
    for (size_t i = 0; i < got[row].size(); ++i) ASSERT_NEAR(got[row][i], expected[row][i], 1e-4);
  }
}

TEST(LoadingTest, MissingTensorsAreNamedWithTheirShape) {
  CheckpointCopy copy("qwen3-bf16");
  copy.Remove("model.layers.1.self_attn.k_norm.weight");
  copy.Remove("model.layers.0.mlp.up_proj.weight");
  EXPECT_THAT(
      copy.Failure(),
      AllOf(HasSubstr("'model.layers.1.self_attn.k_norm.weight' of shape [64] is missing"),
            HasSubstr("'model.layers.0.mlp.up_proj.weight' of shape [384, 128] is missing")));
}

TEST(LoadingTest, WrongShapesAndTypesAreNamed) {
  CheckpointCopy copy("qwen3-bf16");
  copy.tensor("model.norm.weight").shape = {2, 64};
  EXPECT_THAT(copy.Failure(), AllOf(HasSubstr("'model.norm.weight' in model.safetensors"),
                                    HasSubstr("[2, 64], expected [128]")));
  copy.tensor("model.norm.weight").shape = {128};
  copy.tensor("model.layers.0.mlp.down_proj.weight").dtype = "I16";
  EXPECT_THAT(copy.Failure(), AllOf(HasSubstr("model.layers.0.mlp.down_proj.weight"),
                                    HasSubstr("I16, expected F32, F16 or BF16")));
}

TEST(LoadingTest, WhatDoesNotFitAMixerIsNamed) {
  CheckpointCopy copy("tiny-qwen3-next");
  const auto tensor = [](const char* name) {
    return std::string("model.layers.0.linear_attn.") + name;
  };
  copy.Remove(tensor("A_log"));
  copy.tensor(tensor("conv1d.weight")).shape = {256, 1, 2};
  copy.tensor(tensor("norm.weight")).shape = {10, 2};
  EXPECT_THAT(
      copy.Failure(),
      AllOf(HasSubstr("'model.layers.0.linear_attn.A_log' of shape [4] is missing"),
            HasSubstr("'model.layers.0.linear_attn.conv1d.weight' in model.safetensors has shape "
                      "[256, 1, 2], expected [128, 1, 4]"),
            HasSubstr("'model.layers.0.linear_attn.norm.weight' in model.safetensors has shape "
                      "[10, 2], expected [20]")));
  // A convolution stored as three tensors of unexpected sizes.
  CheckpointCopy split("tiny-olmo-hybrid");
  split.Remove(tensor("q_conv1d.weight"));
  split.tensors().push_back({tensor("q_conv1d.weight"), "BF16", {1, 1, 4}, "12345678"});
  EXPECT_THAT(split.Failure(), HasSubstr("numbers together, expected 512 from config.json"));
  // A NaN among the decays of a layer.
  CheckpointCopy nan("tiny-qwen3-next");
  std::memcpy(nan.tensor(tensor("A_log")).data.data() + 4, "\xC0\x7F", 2);
  EXPECT_THAT(nan.Failure(),
              HasSubstr("'model.layers.0.linear_attn.A_log' in model.safetensors has nan at "
                        "element 2, expected finite numbers"));
}

TEST(LoadingTest, TensorsOfNothingAreNamedAndKnownOnesPassedOver) {
  CheckpointCopy copy("qwen3-bf16");
  copy.tensors().push_back(
      {"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {2}, "12345678"});
  EXPECT_EQ(copy.Failure(), "loaded");
  copy.tensors().push_back({"model.layers.2.mlp.up_proj.weight", "BF16", {1}, "12"});
  EXPECT_THAT(
      copy.Failure(),
      HasSubstr("'model.layers.2.mlp.up_proj.weight' in model.safetensors belongs to no part"));
}

// The checkpoint of another architecture may have 100,000 unneeded tensors. Ten times as many
// tensors must take about ten times as long. If each were compared with all, they would take a
// hundred times as long.
TEST(LoadingTest, ManyTensorsOfNothingAreCounted) {
  const auto work_of = [](int count) {
    CheckpointCopy copy("qwen3-bf16");
    for (int i = 0; i < count; ++i)
      copy.tensors().push_back({fmt::format("model.layers.7.experts.{}", i), "BF16", {0}, ""});
    const std::clock_t start = std::clock();
    EXPECT_THAT(copy.Failure(), HasSubstr(fmt::format("and {} more problems", count - 8)));
    return static_cast<double>(std::clock() - start);
  };
  const double few = work_of(5'000);
  EXPECT_LT(work_of(50'000) / few, 40);
}

// A NaN in the router would exclude an expert, which no other check would detect.
TEST(LoadingTest, NumbersThatAreNotFiniteAreRefusedByName) {
  struct Case {
    const char* checkpoint;
    const char* tensor;
    const char* dtype;
    std::vector<std::string> bits;  // bytes of the number, little-endian
    const char* place;
  };
  const std::vector<Case> cases = {
      {"qwen3-moe-llmc-nvfp4",
       "model.layers.0.mlp.gate.weight",
       "BF16",
       {"\xC0\x7F", "\x80\x7F", "\x80\xFF"},
       "row 0, column 5"},
      {"qwen3-bf16", "model.embed_tokens.weight", "BF16", {"\xFF\x7F"}, "row 0, column 5"},
      {"qwen3-bf16",
       "model.layers.1.mlp.down_proj.weight",
       "F16",
       {{"\x00\x7C", 2}, {"\x00\xFC", 2}, {"\x01\x7E", 2}},
       "row 0, column 5"},
      {"qwen3-bf16",
       "model.layers.1.self_attn.v_proj.weight",
       "F32",
       {{"\x00\x00\x80\x7F", 4}, {"\x01\x00\xC0\xFF", 4}},
       "row 0, column 5"},
      {"qwen3-bf16", "model.norm.weight", "BF16", {"\x80\x7F"}, "element 5"},
      {"tiny-lfm2-moe", "model.layers.0.conv.conv.bias", "BF16", {"\xC0\x7F"}, "element 5"},
      {"tiny-bamba", "model.layers.0.mamba.norm.weight", "BF16", {"\xC0\x7F"}, "element 5"},
      {"qwen3-llmc-fp8-block",
       "model.layers.0.self_attn.k_proj.weight",
       "F8_E4M3",
       {"\x7F", "\xFF"},
       "row 0, column 5"},
  };
  for (const Case& wrong : cases) {
    for (const std::string& bits : wrong.bits) {
      CheckpointCopy copy(wrong.checkpoint);
      TestTensor& tensor = copy.tensor(wrong.tensor);
      if (tensor.dtype != wrong.dtype) {
        tensor.data =
            ConvertData(tensor.data, bits.size() == 4 ? ElementType::kF32 : ElementType::kF16);
        tensor.dtype = wrong.dtype;
      }
      ASSERT_EQ(tensor.dtype, wrong.dtype);
      std::memcpy(tensor.data.data() + 5 * bits.size(), bits.data(), bits.size());
      EXPECT_THAT(copy.Failure(),
                  AllOf(HasSubstr(fmt::format("'{}'", wrong.tensor)),
                        HasSubstr(fmt::format(" at {}, expected finite numbers", wrong.place))));
      EXPECT_EQ(copy.Failure(/*allow_nonfinite=*/true), "loaded") << wrong.tensor;
    }
  }
}

// Parts with different formats are decoded before packing.
TEST(LoadingTest, NumbersThatAreNotFiniteAreFoundInDecodedParts) {
  CheckpointCopy copy("qwen3-llmc-fp8-block");
  TestTensor& codes = copy.tensor("model.layers.0.self_attn.q_proj.weight");
  TestTensor& plain = copy.tensor("model.layers.0.self_attn.k_proj.weight");
  ASSERT_EQ(codes.dtype, "F8_E4M3");
  plain.dtype = "BF16";
  plain.data = std::string(2 * plain.data.size(), '\0');
  copy.Remove("model.layers.0.self_attn.k_proj.weight_scale");
  EXPECT_EQ(copy.Failure(), "loaded");
  copy.tensor("model.layers.0.self_attn.q_proj.weight").data[200] = '\x7F';
  EXPECT_THAT(copy.Failure(), HasSubstr("'model.layers.0.self_attn.q_proj.weight'"));
}

TEST(LoadingTest, QNormsDoNotFitLlama) {
  CheckpointCopy copy("qwen3-bf16");
  copy.config().Set("architectures", json::Value::Array{"LlamaForCausalLM"});
  copy.config().Set("model_type", "llama");
  EXPECT_THAT(copy.Failure(), HasSubstr("q_norm"));
}

TEST(LoadingTest, TheHeadIsTiedOnlyWhereConfigSaysSo) {
  CheckpointCopy untied("llama-bf16");
  untied.Remove("lm_head.weight");
  EXPECT_THAT(untied.Failure(),
              AllOf(HasSubstr("lm_head.weight"), HasSubstr("tie_word_embeddings is false")));

  // A stored head is ignored if the head is tied to the embedding.
  const auto options = SmallOptions(ElementType::kF32, ElementType::kF32);
  const LogitRows expected =
      Runner(DataFolder("llama-tied-bf16-sharded"), options, 1).RunAlone(kTokens, 10);
  CheckpointCopy tied("llama-tied-bf16-sharded");
  TestTensor head = tied.tensor("model.embed_tokens.weight");
  head.name = "lm_head.weight";
  std::fill(head.data.begin(), head.data.end(), '\x11');
  tied.tensors().push_back(head);
  EXPECT_TRUE(Runner(tied.Write(), options, 1).RunAlone(kTokens, 10) == expected);
}

TEST(LoadingTest, ProgressEndsWithTheTotal) {
  const auto config = LoadModelConfig(DataFolder("qwen3-bf16"));
  ThreadPool pool(2);
  for (const auto format : {ModelOptions::LoadFormat::kAuto, ModelOptions::LoadFormat::kDummy}) {
    ModelOptions options = SmallOptions(ElementType::kBF16, ElementType::kBF16);
    options.load_format = format;
    int64_t last = -1, total = 0;
    const auto model = LoadModel(pool, DataFolder("qwen3-bf16"), *config, options,
                                 [&](int64_t done, int64_t in_all) {
                                   EXPECT_GE(done, last);
                                   last = done;
                                   total = in_all;
                                 });
    ASSERT_TRUE(model);
    EXPECT_EQ(last, total);
    EXPECT_GT(total, 1'000'000);
  }
}

TEST(PlanTest, CountsEveryByteOfTheWeights) {
  for (const char* name : {"llama-bf16", "llama-tied-bf16-sharded", "qwen3-bf16"}) {
    const auto config = LoadModelConfig(DataFolder(name));
    ModelOptions options = SmallOptions(ElementType::kBF16, ElementType::kBF16);
    const auto memory = PlanModel(*config, options, 2);
    ASSERT_TRUE(memory);
    EXPECT_EQ(memory->weight_bytes, LoadedWeightBytes(name, *config)) << name;
    EXPECT_EQ(
        memory->kv_bytes_per_block,
        2 * config->num_hidden_layers * config->num_key_value_heads * config->head_dim * 16 * 2);
  }
}

ModelConfig Llama1B() {
  return *ParseModelConfig(*json::Parse(
      R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "hidden_size": 2048,
      "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
      "rope_theta": 500000.0, "max_position_embeddings": 10485760, "tie_word_embeddings": true, "dtype": "bfloat16"})"));
}

TEST(PlanTest, KnowsTheSizeOfAPublishedModel) {
  ModelOptions options;
  const auto memory = PlanModel(Llama1B(), options, 2);
  ASSERT_TRUE(memory);
  // 1,235,814,400 parameters, 67,584 of them norms in F32.
  EXPECT_EQ(memory->weight_bytes, 2 * 1'235'814'400ll + 2 * 33 * 2048);
  EXPECT_EQ(memory->kv_bytes_per_block, 16 * 2 * 16 * 8 * 64 * 2);
  // The workspace is small although max_position_embeddings is ten million.
  EXPECT_LT(memory->workspace_bytes, int64_t{512} << 20);
}

TEST(PlanTest, KnowsTheSizeOfExperts) {
  const auto config = ParseModelConfig(*json::Parse(
      R"({"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "text_config": {"vocab_size": 202048, "hidden_size": 5120,
      "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_hidden_layers": 48, "num_attention_heads": 40,
      "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 16, "num_experts_per_tok": 1,
      "rope_theta": 500000.0, "max_position_embeddings": 10485760, "dtype": "bfloat16"}})"));
  ASSERT_TRUE(config) << config.error().message;
  const auto memory = PlanModel(*config, ModelOptions(), 2);
  ASSERT_TRUE(memory) << memory.error().message;
  const int64_t attention = 5120 * (2 * 5120 + 2 * 1024), expert = 3 * 5120 * 8192;
  const int64_t matrices =
      2 * 202048ll * 5120 + 48 * (attention + 17 * int64_t{expert} + 16 * 5120);
  EXPECT_EQ(memory->weight_bytes, 2 * matrices + 4 * 97 * 5120);
  // One token uses the shared expert, one other expert, and one row of the embedding.
  EXPECT_EQ(memory->token_weight_bytes,
            memory->weight_bytes - 2 * (202048ll * 5120 + 48 * 15 * int64_t{expert}));
  // The workspace is small although max_position_embeddings is ten million.
  EXPECT_LT(memory->workspace_bytes, int64_t{2} << 30);
}

TEST(PlanTest, RefusesTypesByName) {
  ModelOptions options;
  options.kv_type = ElementType::kF8E5M2;
  EXPECT_THAT(PlanModel(Llama1B(), options, 1).error().message, HasSubstr("F8_E5M2"));
  options.compute_type = ElementType::kF16;
  EXPECT_THAT(PlanModel(Llama1B(), options, 1).error().message, HasSubstr("F16"));
}

TEST(RegistryTest, OtherArchitecturesAreRefusedWithTheSupportedOnes) {
  const auto config = ParseModelConfig(*json::Parse(R"({"architectures": ["OtherForCausalLM"]})"));
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(config.error().message,
              AllOf(HasSubstr("OtherForCausalLM"), HasSubstr("LlamaForCausalLM")));
}

class DummyTest : public ::testing::Test {
 protected:
  LogitRows Run(uint64_t seed, int num_threads, ElementType type = ElementType::kBF16) {
    ModelOptions options = SmallOptions(type, type);
    options.load_format = ModelOptions::LoadFormat::kDummy;
    options.dummy_seed = seed;
    return Runner(*LoadModelConfig(DataFolder("llama-bf16")), options, num_threads)
        .RunAlone(kTokens, 10);
  }
};

TEST_F(DummyTest, TheSeedAloneDecides) {
  const LogitRows one = Run(1, 1);
  EXPECT_TRUE(Run(1, 3) == one);
  EXPECT_FALSE(Run(2, 1) == one);
}

TEST_F(DummyTest, LogitsAreFiniteAndOfOrdinarySize) {
  for (const ElementType type : {ElementType::kBF16, ElementType::kF32}) {
    double sum = 0, count = 0;
    for (const auto& row : Run(0, 2, type)) {
      for (const float x : row) {
        ASSERT_TRUE(std::isfinite(x));
        sum += double{x} * x;
        ++count;
      }
    }
    EXPECT_GT(std::sqrt(sum / count), 0.3);
    EXPECT_LT(std::sqrt(sum / count), 3);
  }
}

}  // namespace
}  // namespace sluice
