// Layers of families as config.json describes them: attention, windows, norms and factors.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/family_config_testing.h"
#include "models/registry.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using testing::Experts;
using ::testing::HasSubstr;
using testing::Json;
using testing::LayerAttention;
using testing::LayerFailure;
using testing::Layers;
using testing::LayersWithExperts;
using testing::ParseLayers;
using testing::Windows;
using testing::With;

constexpr const char* kLlama4 = "Llama4ForCausalLM";

constexpr const char* kQwen3Moe = "Qwen3MoeForCausalLM";

TEST(LayerConfigTest, Llama4HasTheLibrarysDefaults) {
  const ModelConfig config = ParseLayers(kLlama4, R"({"num_local_experts": 4})");
  EXPECT_THAT(Layers(config), ElementsAre(LayerAttention{true, 8192}, LayerAttention{true, 8192},
                                          LayerAttention{true, 8192}, LayerAttention{false, 0}));
  EXPECT_EQ(config.spec.layers[0].attention.qk_norm, QkNorm::kAfterRopeUnweighted);
  EXPECT_FALSE(config.spec.layers[0].attention.temperature_tuning);
  const AttentionSpec& last = config.spec.layers[3].attention;
  EXPECT_EQ(last.qk_norm, QkNorm::kNone);
  ASSERT_TRUE(last.temperature_tuning);
  EXPECT_EQ(last.temperature_tuning->floor_scale, 8192);
  EXPECT_EQ(last.temperature_tuning->attn_scale, 0.1);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  ASSERT_EQ(config.spec.NumMoeLayers(), 4);
  EXPECT_EQ(Experts(config).top_k, 1);
  EXPECT_EQ(Experts(config).intermediate_size, 64);
  EXPECT_THAT(LayersWithExperts(config), ElementsAre(true, true, true, true));
}

TEST(LayerConfigTest, AOneInNoRopeLayersMeansRope) {
  const ModelConfig config = ParseLayers(
      kLlama4,
      R"({"num_local_experts": 4, "no_rope_layers": [0, 1, 0, 1], "attention_chunk_size": 16,
                   "layer_types": ["full_attention", "full_attention", "chunked_attention", "chunked_attention"]})");
  EXPECT_THAT(Layers(config), ElementsAre(LayerAttention{false, 0}, LayerAttention{true, 0},
                                          LayerAttention{false, 16}, LayerAttention{true, 16}));
  EXPECT_THAT(
      Layers(ParseLayers(
          kLlama4,
          R"({"num_local_experts": 4, "no_rope_layers": [], "no_rope_layer_interval": 2})")),
      ElementsAre(LayerAttention{true, 8192}, LayerAttention{false, 0}, LayerAttention{true, 8192},
                  LayerAttention{false, 0}));
}

TEST(LayerConfigTest, Llama4SwitchesInEverySpelling) {
  const auto tunes = [](const ModelConfig& config) {
    return config.spec.layers[3].attention.temperature_tuning.has_value();
  };
  EXPECT_TRUE(
      tunes(ParseLayers(kLlama4, R"({"num_local_experts": 4, "attn_temperature_tuning": 4})")));
  for (const char* no : {"false", "0"}) {
    EXPECT_FALSE(tunes(ParseLayers(
        kLlama4, fmt::format(R"({{"num_local_experts": 4, "attn_temperature_tuning": {}}})", no))));
  }
  EXPECT_EQ(ParseLayers(kLlama4, R"({"num_local_experts": 4, "use_qk_norm": false})")
                .spec.layers[0]
                .attention.qk_norm,
            QkNorm::kNone);
}

TEST(LayerConfigTest, Llama4MixesExpertsAndMlps) {
  const ModelConfig every_second = ParseLayers(
      kLlama4,
      R"({"num_local_experts": 4, "interleave_moe_layer_step": 2, "intermediate_size_mlp": 256})");
  EXPECT_THAT(LayersWithExperts(every_second), ElementsAre(false, true, false, true));
  EXPECT_EQ(every_second.intermediate_size, 256);
  EXPECT_EQ(Experts(every_second).intermediate_size, 64);
  EXPECT_EQ(every_second.spec.layers[0].mlp.intermediate_size, 256);
  EXPECT_THAT(
      LayersWithExperts(ParseLayers(
          kLlama4, R"({"num_local_experts": 4, "moe_layers": [0], "intermediate_size_mlp": 256})")),
      ElementsAre(true, false, false, false));
  EXPECT_EQ(ParseLayers(kLlama4, R"({"num_local_experts": 4, "moe_layers": [0]})")
                .spec.layers[1]
                .mlp.intermediate_size,
            16384);
}

TEST(LayerConfigTest, NestedFieldsAreReadAndNamed) {
  json::Value outer = Json(R"({"architectures": ["Llama4ForConditionalGeneration"],
    "model_type": "llama4", "dtype": "float16", "vision_config": {}, "eos_token_id": 7})");
  json::Value text = With(kLlama4, R"({"num_local_experts": 4, "dtype": null})");
  outer.Set("text_config", text);
  const auto config = ParseModelConfig(outer);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->hidden_size, 128);
  EXPECT_EQ(config->dtype, ElementType::kF16);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(7));
  text.Set("hidden_size", "wide");
  outer.Set("text_config", text);
  EXPECT_THAT(ParseModelConfig(outer).error().message, HasSubstr("text_config.hidden_size"));
  outer.Set("text_config", json::Value());
  EXPECT_THAT(ParseModelConfig(outer).error().message, HasSubstr("text_config is missing"));
}

TEST(LayerConfigTest, WindowsOfTheFamilies) {
  EXPECT_THAT(Windows(ParseLayers("MistralForCausalLM", "{}")),
              ElementsAre(4096, 4096, 4096, 4096));
  EXPECT_THAT(Windows(ParseLayers("MistralForCausalLM", R"({"sliding_window": null})")),
              ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(Windows(ParseLayers("MistralForCausalLM", R"({"sliding_window": 100, "layer_types":
        ["full_attention", "sliding_attention", "full_attention", "sliding_attention"]})")),
              ElementsAre(0, 100, 0, 100));
  for (const char* qwen : {"Qwen2ForCausalLM", "Qwen3ForCausalLM"}) {
    // Without use_sliding_window, sliding_window is ignored.
    EXPECT_THAT(Windows(ParseLayers(qwen, R"({"sliding_window": 32, "max_window_layers": 0})")),
                ElementsAre(0, 0, 0, 0));
    EXPECT_THAT(Windows(ParseLayers(qwen, R"({"use_sliding_window": true, "sliding_window": 32,
                                              "max_window_layers": 2})")),
                ElementsAre(0, 0, 32, 32));
    EXPECT_THAT(LayerFailure(qwen, R"({"sliding_window": 32, "layer_types":
        ["full_attention", "sliding_attention", "full_attention", "sliding_attention"]})"),
                HasSubstr("use_sliding_window"));
  }
}

TEST(LayerConfigTest, WindowsThatAreAskedFor) {
  const std::string asked = R"({"use_sliding_window": true, "sliding_window": 32)";
  EXPECT_THAT(Windows(ParseLayers(kQwen3Moe, asked + "}")), ElementsAre(32, 32, 32, 32));
  EXPECT_THAT(Windows(ParseLayers(kQwen3Moe, R"({"use_sliding_window": true})")),
              ElementsAre(4096, 4096, 4096, 4096));
  EXPECT_THAT(Windows(ParseLayers(kQwen3Moe, R"({"sliding_window": 32})")),
              ElementsAre(0, 0, 0, 0));
  constexpr const char* kQwen2Moe = "Qwen2MoeForCausalLM";
  EXPECT_THAT(Windows(ParseLayers(kQwen2Moe, asked + R"(, "max_window_layers": 3})")),
              ElementsAre(32, 0, 32, 0));
  EXPECT_THAT(Windows(ParseLayers(kQwen2Moe, asked + R"(, "max_window_layers": 2})")),
              ElementsAre(32, 0, 0, 0));
  // SmolLM3: only layers without RoPE have a window.
  constexpr const char* kSmol = "SmolLM3ForCausalLM";
  EXPECT_THAT(Windows(ParseLayers(kSmol, asked + "}")), ElementsAre(0, 0, 0, 32));
  EXPECT_THAT(Windows(ParseLayers(kSmol, R"({"use_sliding_window": true})")),
              ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(LayerFailure(kSmol, R"({"layer_types": ["sliding_attention", "full_attention",
      "full_attention", "full_attention"]})"),
              HasSubstr("sliding_window is missing"));
  // Without a chunk size every layer sees all positions.
  EXPECT_EQ(
      ParseLayers(kLlama4, R"({"attention_chunk_size": null})").spec.layers[0].attention.span.chunk,
      0);
}

TEST(LayerConfigTest, OlmoHasNormsBehindItsSublayers) {
  const ModelConfig two = ParseLayers("Olmo2ForCausalLM", "{}");
  EXPECT_EQ(two.spec.layers[0].attention_norms.before, "");
  EXPECT_EQ(two.spec.layers[0].mlp_norms.after, "post_feedforward_layernorm");
  EXPECT_EQ(two.spec.layers[0].attention.qk_norm, QkNorm::kWholeWidth);
  const ModelConfig three = ParseLayers("Olmo3ForCausalLM", R"({"rope_scaling": {
      "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}})");
  EXPECT_THAT(Windows(three), ElementsAre(4096, 4096, 4096, 0));
  ASSERT_EQ(three.spec.rope_tables.size(), 2u);
  EXPECT_NE(three.spec.rope_tables[0], three.spec.rope_tables[1]);
  EXPECT_EQ(three.spec.layers[0].attention.rope_table, 1);
  // YaRN's factor applies only to layers with YaRN scaling.
  EXPECT_FALSE(three.spec.layers[0].attention.scale);
  EXPECT_TRUE(three.spec.layers[3].attention.scale);
}

TEST(LayerConfigTest, GraniteMultiplies) {
  const std::string factors = R"("embedding_multiplier": 12, "residual_multiplier": 0.22,
      "attention_multiplier": 0.015625, "logits_scaling": 8)";
  const ModelConfig config = ParseLayers("GraniteForCausalLM", "{" + factors + "}");
  EXPECT_EQ(config.spec.embedding_scale, 12);
  EXPECT_FLOAT_EQ(config.spec.residual_scale, 0.22f);
  EXPECT_EQ(config.spec.logit_scale, 0.125f);
  EXPECT_EQ(config.spec.layers[2].attention.scale, 0.015625f);
  constexpr const char* kHybrid = "GraniteMoeHybridForCausalLM";
  const std::string layers =
      R"("layer_types": ["attention", "attention", "attention", "attention"])";
  const ModelConfig dense = ParseLayers(
      kHybrid, "{" + layers + R"(, "num_local_experts": 0, "shared_intermediate_size": 80})");
  EXPECT_FALSE(dense.spec.layers[0].attention.rope);
  EXPECT_EQ(dense.spec.layers[0].mlp.gate_up_projection, "input_linear");
  EXPECT_EQ(dense.intermediate_size, 80);
  const ModelConfig mixed = ParseLayers(
      kHybrid, "{" + layers + R"(, "num_local_experts": 62, "num_experts_per_tok": 6})");
  EXPECT_EQ(Experts(mixed).num_experts, 62);
  EXPECT_EQ(Experts(mixed).top_k, 6);
  EXPECT_EQ(Experts(mixed).intermediate_size, 64);
  EXPECT_TRUE(Experts(mixed).normalize);
  EXPECT_EQ(mixed.spec.layers[1].mlp.intermediate_size, 1024);
  EXPECT_THAT(LayerFailure(kHybrid, R"({"layer_types": ["mamba", "mamba", "mamba", "mamba2"]})"),
              HasSubstr("'mamba2' is not supported"));
  EXPECT_THAT(LayerFailure(kHybrid, "{}"), HasSubstr("layer_types is missing"));
}

TEST(LayerConfigTest, SoftCapsOfGemma2) {
  const ModelConfig config = ParseLayers("Gemma2ForCausalLM", R"({"sliding_window": 100})");
  EXPECT_THAT(Windows(config), ElementsAre(100, 0, 100, 0));
  EXPECT_EQ(config.spec.layers[1].attention.soft_cap, 50);
  EXPECT_EQ(config.spec.logit_soft_cap, 30);
  const ModelConfig without = ParseLayers("Gemma2ForCausalLM", R"({
      "attn_logit_softcapping": null, "final_logit_softcapping": null})");
  EXPECT_EQ(without.spec.layers[1].attention.soft_cap, 0);
  EXPECT_EQ(without.spec.logit_soft_cap, 0);
}

TEST(LayerConfigTest, AWindowOf0IsNoneWhereNoneIsWanted) {
  for (const char* name : {"Qwen2ForCausalLM", "Qwen2MoeForCausalLM"}) {
    const ModelConfig config =
        ParseLayers(name, R"({"use_sliding_window": false, "sliding_window": 0})");
    for (const LayerSpec& layer : config.spec.layers) EXPECT_EQ(layer.attention.span.window, 0);
  }
}

TEST(RegistryTest, EveryFamilyIsDescribed) {
  for (const ModelFamily* family : ModelFamilies()) {
    EXPECT_FALSE(family->notes.models.empty()) << family->architecture;
    EXPECT_FALSE(family->notes.operators.empty()) << family->architecture;
    EXPECT_EQ(family->notes.error > 0, !family->notes.golden.empty()) << family->architecture;
    // The error bound of the golden tests.
    EXPECT_LE(family->notes.error, 2e-4) << family->architecture;
  }
}

TEST(LayerConfigTest, ContradictionsAreNamed) {
  for (const char* changes :
       {R"("layer_types": ["full_attention"])", R"("layer_types": ["sliding_attention"])",
        R"("no_rope_layers": [1, 0])", R"("no_rope_layers": [1, 0, 2, 1])", R"("moe_layers": [4])",
        R"("attn_temperature_tuning": "yes")", R"("floor_scale": 0)",
        R"("attention_chunk_size": 0)", R"("num_experts_per_tok": 5)"}) {
    const std::string field(changes + 1, std::string_view(changes + 1).find('"'));
    EXPECT_THAT(LayerFailure(kLlama4, fmt::format(R"({{"num_local_experts": 4, {}}})", changes)),
                HasSubstr(field));
  }
}

}  // namespace
}  // namespace sluice
