// Language models inside models of text and images.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_testing.h"
#include "models/family_config_testing.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Json;
using testing::ParseLayers;
using testing::Windows;
using testing::With;

TEST(LayerConfigTest, MistralInsideAModelOfTextAndImages) {
  json::Value outer = Json(R"({"architectures": ["Mistral3ForConditionalGeneration"],
    "model_type": "mistral3", "dtype": "bfloat16", "vision_config": {}})");
  json::Value text = With("MistralForCausalLM", R"({"sliding_window": null})");
  outer.Set("text_config", text);
  auto config = ParseModelConfig(outer);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_THAT(Windows(*config), ElementsAre(0, 0, 0, 0));
  text.Set("model_type", "ministral3");
  text.Set("rope_parameters", Json(R"({"rope_type": "yarn", "factor": 16.0, "rope_theta": 1e6,
      "original_max_position_embeddings": 16384, "llama_4_scaling_beta": 0.1})"));
  outer.Set("text_config", text);
  config = ParseModelConfig(outer);
  ASSERT_TRUE(config) << config.error().message;
  const auto& tuning = config->spec.layers[0].attention.temperature_tuning;
  ASSERT_TRUE(tuning);
  EXPECT_EQ(tuning->floor_scale, 16384);
  EXPECT_EQ(tuning->first, 0);
  text.Set("model_type", "qwen3");
  outer.Set("text_config", text);
  EXPECT_THAT(ParseModelConfig(outer).error().message, HasSubstr("text_config.model_type 'qwen3'"));
}

// Without settings of RoPE, YaRN's defaults apply, as in transformers.
TEST(LayerConfigTest, Ministral3HasAScalingByDefault) {
  const auto check = [](const ModelConfig& config) {
    ASSERT_TRUE(config.rope.scaling);
    EXPECT_EQ(config.rope.scaling->kind, RopeKind::kYarn);
    EXPECT_EQ(config.rope.theta, 1e6);
    EXPECT_EQ(config.rope.scaling->factor, 16);
    EXPECT_EQ(config.rope.scaling->attention_factor, 1);
    EXPECT_EQ(config.max_position_embeddings, 262144);
    const auto& tuning = config.spec.layers[0].attention.temperature_tuning;
    ASSERT_TRUE(tuning);
    EXPECT_EQ(tuning->floor_scale, 16384);
  };
  check(ParseLayers("Ministral3ForCausalLM", R"({"rope_theta": null})"));
  json::Value outer = Json(R"({"architectures": ["Mistral3ForConditionalGeneration"],
    "model_type": "mistral3", "dtype": "bfloat16", "vision_config": {}})");
  outer.Set("text_config", Json(R"({"model_type": "ministral3"})"));
  const auto nested = ParseModelConfig(outer);
  ASSERT_TRUE(nested) << nested.error().message;
  check(*nested);
  EXPECT_EQ(nested->num_hidden_layers, 34);
}

// If two flags contradict each other, the checkpoint decides: if it contains a head, embeddings are
// not tied.
TEST(LayerConfigTest, NestedTiesAreSettledByTheFiles) {
  const testing::TemporaryFolder folder;
  const auto tie = [&](std::string_view around, std::string_view of_text, const char* tensor) {
    json::Value outer = Json(around);
    outer.Set("architectures", Json(R"(["Mistral3ForConditionalGeneration"])"));
    outer.Set("text_config", With("MistralForCausalLM", of_text));
    testing::WriteFile(folder.path() / "config.json", json::Write(outer));
    testing::WriteFile(folder.path() / "model.safetensors",
                       testing::MakeSafetensors({{tensor, "U8", {1}, "1"}}));
    const auto config = LoadModelConfig(folder.path());
    EXPECT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->spec.tied_head, config->tie_word_embeddings);
    return config->tie_word_embeddings;
  };
  constexpr const char* kHead = "language_model.lm_head.weight";
  constexpr const char* kTied = R"({"tie_word_embeddings": true})";
  constexpr const char* kOwn = R"({"tie_word_embeddings": false})";
  EXPECT_TRUE(tie(kTied, kOwn, "a"));
  EXPECT_TRUE(tie(kOwn, kTied, "a"));
  EXPECT_FALSE(tie(kTied, kOwn, kHead));
  EXPECT_FALSE(tie(kOwn, kTied, kHead));
  EXPECT_TRUE(tie(kTied, "{}", kHead));
  EXPECT_TRUE(tie("{}", kTied, kHead));
  EXPECT_FALSE(tie("{}", "{}", "a"));
}

// Published configurations of Gemma 3 with images omit fields with default values.
TEST(LayerConfigTest, Gemma3InsideAModelOfTextAndImages) {
  const auto config = ParseModelConfig(Json(R"({
    "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
    "torch_dtype": "bfloat16", "vision_config": {}, "text_config": {"hidden_size": 2560,
    "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 6,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}})"));
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->vocab_size, 262208);
  EXPECT_EQ(config->num_attention_heads, 8);
  EXPECT_EQ(config->max_position_embeddings, 131072);
  EXPECT_THAT(Windows(*config), ElementsAre(1024, 1024, 1024, 1024, 1024, 0));
}

// The layers of Gemma 4 E2B, as in the published text_config.
constexpr const char* kGemma4Layers = R"({
    "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "text_config": {
      "model_type": "gemma4_text", "hidden_size": 1536, "intermediate_size": 6144, "num_hidden_layers": 6,
      "num_attention_heads": 8, "num_key_value_heads": 1, "num_kv_shared_layers": 3, "use_double_wide_mlp": true,
      "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "sliding_attention",
                      "full_attention"]}})";

Result<ModelConfig> Gemma4With(std::string_view changes) {
  json::Value config = Json(kGemma4Layers);
  json::Value text = *config.Find("text_config");
  const json::Value overlay = Json(changes);
  for (const auto& [key, value] : overlay.as_object()) text.Set(key, value);
  config.Set("text_config", text);
  return ParseModelConfig(config);
}

TEST(Gemma4Test, LayersShareKeysAndHaveWiderHeadsWhereTheySeeEverything) {
  const auto config = Gemma4With("{}");
  ASSERT_TRUE(config) << config.error().message;
  const std::vector<LayerSpec>& layers = config->spec.layers;
  EXPECT_THAT(Windows(*config), ElementsAre(512, 512, 0, 512, 512, 0));
  EXPECT_EQ(layers[0].attention.head_dim, 256);
  EXPECT_EQ(layers[2].attention.head_dim, 512);
  EXPECT_EQ(layers[2].attention.num_kv_heads, 1);
  EXPECT_FALSE(layers[2].attention.values_are_keys);
  EXPECT_EQ(layers[2].attention.kv_layer, -1);
  EXPECT_EQ(layers[3].attention.kv_layer, 1);
  EXPECT_EQ(layers[4].attention.kv_layer, 1);
  EXPECT_EQ(layers[5].attention.kv_layer, 2);
  EXPECT_EQ(layers[2].mlp.intermediate_size, 6144);
  EXPECT_EQ(layers[3].mlp.intermediate_size, 2 * 6144);
  EXPECT_EQ(config->spec.layer_embeddings.width, 256);
  // A quarter of each wide head is rotated.
  const std::vector<float>& rope = config->spec.rope_tables[0];
  ASSERT_EQ(rope.size(), 256U);
  EXPECT_GT(rope[63], 0);
  EXPECT_EQ(rope[64], 0);
  EXPECT_EQ(config->spec.rope_tables[1].size(), 128U);
}

// The format of transformers 5.20 and later.
TEST(Gemma4Test, HeadsByTheNumbersOfLayers) {
  const auto config = Gemma4With(
      R"({"attention_k_eq_v": true, "num_kv_shared_layers": 0, "num_key_value_heads": 4, "per_layer_config":
          {"2": {"head_dim": 64, "num_key_value_heads": 2}, "5": {"head_dim": 64, "num_key_value_heads": 2}}})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->spec.layers[2].attention.head_dim, 64);
  EXPECT_EQ(config->spec.layers[5].attention.num_kv_heads, 2);
  EXPECT_TRUE(config->spec.layers[5].attention.values_are_keys);
  EXPECT_EQ(config->spec.layers[4].attention.num_kv_heads, 4);
}

// The format of transformers 5.24 and later: keys have leading zeros.
TEST(Gemma4Test, NumbersOfLayersMayHaveZerosInFront) {
  const auto config =
      Gemma4With(R"({"per_layer_config": {"02": {"head_dim": 64}, "05": {"head_dim": 64}}})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->spec.layers[2].attention.head_dim, 64);
  EXPECT_EQ(config->spec.layers[5].attention.head_dim, 64);
  for (const char* keys : {R"("2": {}, "02": {})", R"("6": {})", R"("x": {})", R"("": {})",
                           R"("-1": {})", R"("2 ": {})", R"("2": 3)"}) {
    const auto refused = Gemma4With(fmt::format(R"({{"per_layer_config": {{{}}}}})", keys));
    ASSERT_FALSE(refused) << keys;
    EXPECT_THAT(refused.error().message, HasSubstr("per_layer_config.")) << keys;
  }
}

TEST(Gemma4Test, WhatIsRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"use_bidirectional_attention": "all"})", "use_bidirectional_attention"},
      {R"({"global_head_dim": 1024})", "global_head_dim"},
      {R"({"attention_k_eq_v": true, "num_global_key_value_heads": 3})",
       "num_global_key_value_heads"},
      {R"({"num_kv_shared_layers": 5})", "num_kv_shared_layers"},
      {R"({"vocab_size_per_layer_input": 1000})", "vocab_size_per_layer_input"},
      {R"({"enable_moe_block": true, "num_experts": 4, "top_k_experts": 5})", "top_k_experts"},
      {R"({"per_layer_config": {"0": {"head_dim": 64}}})", "per_layer_config.0"},
      {R"({"per_layer_config": {"2": {"head_dim": 64}, "5": {"head_dim": 128}}})",
       "per_layer_config.5"},
      {R"({"per_layer_config": {"2": {"sliding_window": 64}}})", "per_layer_config.2"},
      {R"({"rope_parameters": {"full_attention": {"rope_type": "yarn"}, "sliding_attention": {}}})",
       "rope_parameters.full_attention.rope_type"},
      {R"({"rope_parameters": {"full_attention": {}}})", "sliding_attention"},
  };
  for (const auto& [changes, words] : cases) {
    const auto config = Gemma4With(changes);
    ASSERT_FALSE(config) << changes;
    EXPECT_THAT(config.error().message, HasSubstr(words));
  }
}

}  // namespace
}  // namespace sluice
