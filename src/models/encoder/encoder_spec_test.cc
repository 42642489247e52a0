#include "models/encoder/encoder_spec.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr const char* kGte =
    R"({"architectures": ["NewModel"], "vocab_size": 100, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2,
  "max_position_embeddings": 8192, "type_vocab_size": 0, "position_embedding_type": "rope",
  "rope_theta": 500000, "hidden_act": "gelu", "layer_norm_type": "layer_norm", "pack_qkv": true,
  "logn_attention_scale": false, "rope_scaling": {"factor": 2.0, "type": "ntk"}})";
constexpr const char* kNomic = R"({"architectures": ["NomicBertModel"], "vocab_size": 100,
  "n_embd": 64, "n_inner": 96, "n_layer": 2, "n_head": 2, "n_positions": 8192,
  "max_trained_positions": 2048, "activation_function": "swiglu", "rotary_emb_base": 1000,
  "rotary_emb_fraction": 1.0, "rotary_emb_scale_base": null, "qkv_proj_bias": false})";

json::Value EncoderWith(const char* config, const char* changes) {
  json::Value value = *json::Parse(config);
  const json::Value changed = *json::Parse(changes);
  for (const auto& [name, change] : changed.as_object()) value.Set(name, change);
  return value;
}

std::string EncoderFailure(const char* config, const char* changes) {
  const auto spec = ReadEncoderSpec(EncoderWith(config, changes));
  return spec ? "read" : spec.error().message;
}

TEST(EncoderSpecTest, NtkScalesTheBaseAndTheFrequencies) {
  const auto spec = ReadEncoderSpec(*json::Parse(kGte));
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->num_types, 0);
  EXPECT_TRUE(spec->is_gated());
  ASSERT_EQ(spec->rope_frequencies.size(), 16u);
  for (size_t i = 0; i < 16; ++i) {
    const double plain = std::pow(1e6, -static_cast<double>(i) / 16);
    EXPECT_NEAR(spec->rope_frequencies[i] / (plain / std::pow(2.0, 2.0 / 32)), 1, 1e-5);
  }
  const auto plain = ReadEncoderSpec(EncoderWith(kGte, R"({"rope_scaling": null})"));
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_FLOAT_EQ(plain->rope_frequencies[0], 1);
}

TEST(EncoderSpecTest, NomicsOwnNamesAreRead) {
  const auto spec = ReadEncoderSpec(*json::Parse(kNomic));
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->hidden_size, 64);
  EXPECT_EQ(spec->intermediate_size, 96);
  EXPECT_EQ(spec->num_positions, 2048);
  EXPECT_NEAR(spec->rope_frequencies[8], std::pow(1000.0, -0.5), 1e-6);
}

TEST(EncoderSpecTest, WhatWouldChangeTheNumbersIsRefusedByName) {
  EXPECT_THAT(EncoderFailure(kGte, R"({"rope_scaling": {"type": "yarn", "factor": 2}})"),
              HasSubstr("rope type 'yarn'"));
  EXPECT_THAT(
      EncoderFailure(kGte, R"({"rope_scaling": {"type": "ntk", "factor": 2, "mixed_b": 0.3}})"),
      HasSubstr("mixed_b"));
  EXPECT_THAT(EncoderFailure(kGte, R"({"hidden_act": "silu"})"), HasSubstr("hidden_act 'silu'"));
  EXPECT_THAT(EncoderFailure(kGte, R"({"layer_norm_type": "rms_norm"})"),
              HasSubstr("layer_norm_type 'rms_norm'"));
  EXPECT_THAT(EncoderFailure(kGte, R"({"position_embedding_type": "absolute"})"),
              HasSubstr("only rope"));
  EXPECT_THAT(EncoderFailure(kNomic, R"({"position_embedding_type": "rotary"})"),
              HasSubstr("read"));
  EXPECT_THAT(EncoderFailure(kNomic, R"({"qkv_proj_bias": true})"),
              HasSubstr("qkv_proj_bias true"));
  EXPECT_THAT(EncoderFailure(kNomic, R"({"moe_every_n_layers": 2})"),
              HasSubstr("moe_every_n_layers 2"));
  EXPECT_THAT(EncoderFailure(kNomic, R"({"rotary_emb_fraction": 0.5})"),
              HasSubstr("rotary_emb_fraction"));
  EXPECT_THAT(EncoderFailure(kNomic, R"({"rotary_emb_scale_base": 512})"),
              HasSubstr("rotary_emb_scale_base"));
  EXPECT_THAT(EncoderFailure(kNomic, R"({"activation_function": "geglu"})"),
              HasSubstr("activation_function 'geglu'"));
  EXPECT_THAT(EncoderFailure(kNomic, R"({"n_head": null})"), HasSubstr("num_attention_heads"));
}

TEST(EncoderSpecTest, WhatIsLeftOutHasTheClasssDefaults) {
  const struct {
    const char* architecture;
    int64_t vocab_size, hidden_size, intermediate_size, num_layers, num_heads, num_positions;
  } kCases[] = {{"BertModel", 30522, 768, 3072, 12, 12, 512},
                {"RobertaModel", 50265, 768, 3072, 12, 12, 512},
                {"XLMRobertaModel", 30522, 768, 3072, 12, 12, 512},
                {"ModernBertModel", 50368, 768, 1152, 22, 12, 8192}};
  for (const auto& one : kCases) {
    json::Value config{json::Value::Object{}};
    config.Set("architectures", json::Value::Array{one.architecture});
    const auto spec = ReadEncoderSpec(config);
    ASSERT_TRUE(spec) << spec.error().message;
    EXPECT_EQ(spec->vocab_size, one.vocab_size) << one.architecture;
    EXPECT_EQ(spec->hidden_size, one.hidden_size) << one.architecture;
    EXPECT_EQ(spec->intermediate_size, one.intermediate_size) << one.architecture;
    EXPECT_EQ(spec->num_layers, one.num_layers) << one.architecture;
    EXPECT_EQ(spec->num_heads, one.num_heads) << one.architecture;
    EXPECT_EQ(spec->num_positions, one.num_positions) << one.architecture;
  }
}

// Test models on the hub have narrow heads. Any even head size is accepted.
TEST(EncoderSpecTest, HeadsAreEven) {
  EXPECT_EQ(EncoderFailure(kGte, R"({"num_attention_heads": 32})"), "read");
  EXPECT_EQ(EncoderFailure(kGte, R"({"num_attention_heads": 4, "hidden_size": 72})"), "read");
  EXPECT_THAT(EncoderFailure(kGte, R"({"num_attention_heads": 64})"), HasSubstr("64 heads"));
}

constexpr const char* kModern = R"({"architectures": ["ModernBertModel"], "vocab_size": 100,
  "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 2,
  "max_position_embeddings": 8192, "position_embedding_type": "absolute",
  "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0,
  "local_attention": 128})";

TEST(EncoderSpecTest, LayersOfModernBertSeeAWindowOrEverything) {
  const auto spec = ReadEncoderSpec(*json::Parse(kModern));
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->has_window, (std::vector{false, true, true, false}));
  EXPECT_EQ(spec->reach, 64);
  EXPECT_NEAR(spec->rope_frequencies[8], std::pow(160000.0, -0.5), 1e-6);
  EXPECT_NEAR(spec->window_frequencies[8], std::pow(10000.0, -0.5), 1e-6);
  EXPECT_FALSE(spec->classifies_mean);
  // In the format of newer transformers versions.
  const auto newer = ReadEncoderSpec(EncoderWith(kModern, R"({"layer_types":
      ["sliding_attention", "full_attention", "full_attention", "full_attention"],
      "global_rope_theta": null, "local_rope_theta": null, "classifier_pooling": "mean",
      "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 100.0},
                          "sliding_attention": {"rope_type": "default", "rope_theta": 400.0}}})"));
  ASSERT_TRUE(newer) << newer.error().message;
  EXPECT_EQ(newer->has_window, (std::vector{true, false, false, false}));
  EXPECT_NEAR(newer->rope_frequencies[8], 0.1, 1e-6);
  EXPECT_NEAR(newer->window_frequencies[8], 0.05, 1e-6);
  EXPECT_TRUE(newer->classifies_mean);
}

TEST(EncoderSpecTest, WhatModernBertDoesNotComputeIsRefusedByName) {
  EXPECT_THAT(EncoderFailure(kModern, R"({"hidden_activation": "silu"})"),
              HasSubstr("hidden_activation 'silu'"));
  EXPECT_THAT(EncoderFailure(kModern, R"({"layer_types": ["full_attention"]})"),
              HasSubstr("layer_types"));
  EXPECT_THAT(EncoderFailure(kModern, R"({"layer_types": ["full_attention", "linear_attention",
                                                   "full_attention", "full_attention"]})"),
              HasSubstr("'linear_attention'"));
  EXPECT_THAT(
      EncoderFailure(kModern, R"({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}})"),
      HasSubstr("rope_parameters.full_attention.rope_type 'yarn'"));
  EXPECT_THAT(EncoderFailure(kModern, R"({"classifier_pooling": "max"})"),
              HasSubstr("classifier_pooling 'max'"));
  EXPECT_THAT(EncoderFailure(kModern, R"({"num_attention_heads": 3})"), HasSubstr("3 heads"));
}

}  // namespace
}  // namespace sluice
