#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json_testing.h"
#include "checkpoint/checkpoint_testing.h"
#include "models/model_config.h"
#include "models/registry.h"
#include "models/weights.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Json;

// Returns a configuration of `architecture` with four layers and `changes` applied; null removes a
// field.
json::Value With(std::string_view architecture, std::string_view changes) {
  json::Value config = Json(R"({
    "vocab_size": 512, "hidden_size": 128, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "rope_theta": 500000.0, "max_position_embeddings": 131072, "dtype": "bfloat16"})");
  config.Set("architectures", json::Value::Array{std::string(architecture)});
  const json::Value overlay = Json(changes);
  for (const auto& [key, value] : overlay.as_object()) config.Set(key, value);
  return config;
}

ModelConfig ParseLayers(std::string_view architecture, std::string_view changes) {
  auto config = ParseModelConfig(With(architecture, changes));
  EXPECT_TRUE(config) << changes << (config ? "" : config.error().message);
  return config ? *std::move(config) : ModelConfig{};
}

std::string LayerFailure(std::string_view architecture, std::string_view changes) {
  auto config = ParseModelConfig(With(architecture, changes));
  EXPECT_FALSE(config) << changes;
  return config ? "" : config.error().message;
}

std::vector<int64_t> Windows(const ModelConfig& config) {
  std::vector<int64_t> windows;
  for (const LayerSpec& layer : config.spec.layers) windows.push_back(layer.attention.span.window);
  return windows;
}

struct LayerAttention {
  bool rope = true;
  int32_t chunk = 0;

  friend bool operator==(const LayerAttention&, const LayerAttention&) = default;
};

std::vector<LayerAttention> Layers(const ModelConfig& config) {
  std::vector<LayerAttention> layers;
  for (const LayerSpec& layer : config.spec.layers)
    layers.push_back({layer.attention.rope, layer.attention.span.chunk});
  return layers;
}

std::vector<bool> LayersWithExperts(const ModelConfig& config) {
  std::vector<bool> layers;
  for (const LayerSpec& layer : config.spec.layers) layers.push_back(layer.moe.has_value());
  return layers;
}

const MoeSpec& Experts(const ModelConfig& config) {
  return *config.spec.FirstMoeLayer()->moe;
}

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

TEST(LayerConfigTest, Qwen3MoeChoosesItsLayers) {
  const std::string base =
      R"({"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 96, )";
  const ModelConfig config = ParseLayers(
      kQwen3Moe,
      base + R"("decoder_sparse_step": 2, "mlp_only_layers": [3], "norm_topk_prob": true})");
  EXPECT_THAT(LayersWithExperts(config), ElementsAre(false, true, false, false));
  EXPECT_EQ(Experts(config).num_experts, 8);
  EXPECT_EQ(Experts(config).top_k, 2);
  EXPECT_EQ(Experts(config).intermediate_size, 96);
  EXPECT_EQ(config.intermediate_size, 64);
  EXPECT_TRUE(Experts(config).normalize);
  // The format of transformers 5, in which norm_topk_prob defaults to false.
  const ModelConfig newer = ParseLayers(
      kQwen3Moe,
      R"({"num_local_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 96})");
  EXPECT_EQ(Experts(newer).num_experts, 8);
  EXPECT_FALSE(Experts(newer).normalize);
  EXPECT_THAT(LayerFailure(kQwen3Moe, base + R"("mlp_only_layers": [4]})"),
              HasSubstr("mlp_only_layers"));
  EXPECT_THAT(LayerFailure(kQwen3Moe, base + R"("num_experts_per_tok": 9})"),
              HasSubstr("num_experts_per_tok"));
  // transformers' default is 8.
  EXPECT_THAT(LayerFailure(kQwen3Moe, R"({"num_experts": 4})"),
              HasSubstr("num_experts_per_tok must be at most the number of experts 4, found 8"));
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

TEST(LayerConfigTest, MixtralNamesItsExpertsAsPublished) {
  const ModelConfig config = ParseLayers("MixtralForCausalLM", R"({"num_local_experts": 8})");
  EXPECT_EQ(Experts(config).top_k, 2);
  EXPECT_EQ(Experts(config).intermediate_size, 64);
  EXPECT_TRUE(Experts(config).normalize);
  EXPECT_EQ(config.spec.layers[0].mlp.intermediate_size, 0);
  DecoderWeights weights;
  std::vector<std::string> names;
  for (const MatrixParameter& matrix : ListParameters(config.spec, weights).matrices) {
    for (const ParameterPart& part : matrix.parts) names.push_back(part.name);
  }
  EXPECT_THAT(names, ::testing::IsSupersetOf({"model.layers.1.block_sparse_moe.gate",
                                              "model.layers.1.block_sparse_moe.experts.7.w1",
                                              "model.layers.1.block_sparse_moe.experts.7.w2",
                                              "model.layers.1.block_sparse_moe.experts.7.w3"}));
}

TEST(LayerConfigTest, Qwen2MoeGatesItsSharedExpert) {
  const std::string base =
      R"({"num_experts": 8, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 96)";
  const ModelConfig config =
      ParseLayers("Qwen2MoeForCausalLM", base + R"(, "mlp_only_layers": [1]})");
  EXPECT_THAT(LayersWithExperts(config), ElementsAre(true, false, true, true));
  EXPECT_EQ(config.spec.layers[0].mlp.intermediate_size, 96);
  EXPECT_EQ(config.spec.layers[0].mlp.output_gate, "mlp.shared_expert_gate");
  EXPECT_EQ(config.spec.layers[1].mlp.intermediate_size, 64);
  EXPECT_EQ(config.spec.layers[1].mlp.output_gate, "");
  EXPECT_TRUE(config.spec.layers[0].attention.qkv_bias);
  EXPECT_EQ(Experts(config).top_k, 4);
  EXPECT_EQ(Experts(ParseLayers("Qwen2MoeForCausalLM", R"({"num_experts": 8})")).intermediate_size,
            1408);
}

TEST(LayerConfigTest, Phi3RotatesAPartOfAHead) {
  constexpr const char* kPhi3 = "Phi3ForCausalLM";
  EXPECT_EQ(ParseLayers(kPhi3, "{}").spec.layers[0].attention.rotated(), 32);
  const ModelConfig config = ParseLayers(kPhi3, R"({"partial_rotary_factor": 0.75,
      "original_max_position_embeddings": 4096, "sliding_window": 2047, "rope_scaling": {"type": "su",
      "short_factor": [1,1,1,1,1,1,1,1,1,1,1,1], "long_factor": [2,2,2,2,2,2,2,2,2,2,2,2]}})");
  EXPECT_EQ(config.spec.layers[0].attention.rotated(), 24);
  EXPECT_EQ(config.max_position_embeddings, 131072);
  EXPECT_THAT(Windows(config), ElementsAre(2047, 2047, 2047, 2047));
  // The factor is sqrt(1 + log(32) / log(4096)). Heads are rotated in part, so RoPE applies it, not
  // the softmax scale.
  EXPECT_NEAR(config.spec.rope_amplitude, 1.1902, 1e-4);
  EXPECT_FALSE(config.spec.layers[0].attention.scale);
  DecoderSpec spec = config.spec;
  spec.FitRope(4096);
  EXPECT_EQ(spec.rope_tables.front()[0], 1.0f);
  spec.FitRope(4097);
  EXPECT_EQ(spec.rope_tables.front()[0], 0.5f);
  EXPECT_THAT(LayerFailure(kPhi3, R"({"original_max_position_embeddings": 4096, "rope_scaling": {
      "type": "longrope", "short_factor": [1, 1], "long_factor": [1, 1]}})"),
              HasSubstr("short_factor must have 16 numbers"));
  for (const char* factors : {R"("short_factor": [1], "long_factor": [1, 1])",
                              R"("short_factor": [0], "long_factor": [1])",
                              R"("short_factor": "1", "long_factor": [1])"}) {
    EXPECT_THAT(LayerFailure(kPhi3, fmt::format(R"({{"original_max_position_embeddings": 4096,
        "rope_scaling": {{"type": "longrope", {}}}}})",
                                                factors)),
                HasSubstr("_factor"));
  }
  EXPECT_THAT(LayerFailure(kPhi3, R"({"partial_rotary_factor": 0.01})"),
              HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(LayerFailure("LlamaForCausalLM", R"({"partial_rotary_factor": 0.5,
      "rope_scaling": {"rope_type": "dynamic", "factor": 2}})"),
              HasSubstr("partial_rotary_factor 0.5 with rope_type dynamic is not supported by "
                        "LlamaForCausalLM"));
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

TEST(LayerConfigTest, Glm4MoeChoosesWithABias) {
  constexpr const char* kGlm = "Glm4MoeForCausalLM";
  const std::string base =
      R"({"n_routed_experts": 16, "moe_intermediate_size": 32, "n_shared_experts": 2)";
  const ModelConfig config =
      ParseLayers(kGlm, base + R"(, "routed_scaling_factor": 2.5, "num_nextn_predict_layers": 1})");
  EXPECT_THAT(LayersWithExperts(config), ElementsAre(false, true, true, true));
  EXPECT_EQ(config.spec.layers[0].attention.rotated(), 16);
  EXPECT_EQ(config.spec.layers[1].mlp.intermediate_size, 64);
  EXPECT_EQ(Experts(config).weight_scale, 2.5f);
  EXPECT_EQ(Experts(config).choice_bias, "mlp.gate.e_score_correction_bias");
  EXPECT_EQ(config.spec.num_draft_layers, 1);
  const ModelConfig grouped = ParseLayers(kGlm, base + R"(, "n_group": 4, "topk_group": 2})");
  EXPECT_EQ(Experts(grouped).num_groups, 4);
  EXPECT_EQ(Experts(grouped).kept_groups, 2);
  EXPECT_THAT(LayerFailure(kGlm, base + R"(, "n_group": 3})"), HasSubstr("n_group must be"));
  EXPECT_THAT(LayerFailure(kGlm, base + R"(, "n_group": 16})"), HasSubstr("n_group must be"));
  // A single kept group has 4 experts, but 8 are needed.
  EXPECT_THAT(LayerFailure(kGlm, base + R"(, "n_group": 4})"), HasSubstr("topk_group must be"));
}

TEST(LayerConfigTest, GptOssHasSinksAndBiases) {
  constexpr const char* kGptOss = "GptOssForCausalLM";
  const std::string yarn = R"("rope_scaling": {"rope_type": "yarn", "factor": 32.0,
      "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
      "original_max_position_embeddings": 4096})";
  const ModelConfig config =
      ParseLayers(kGptOss, "{" + yarn + R"(, "num_local_experts": 32, "swiglu_limit": 7.0})");
  EXPECT_THAT(Windows(config), ElementsAre(128, 0, 128, 0));
  EXPECT_TRUE(config.spec.layers[1].attention.sinks);
  EXPECT_TRUE(config.spec.layers[1].attention.qkv_bias);
  EXPECT_TRUE(config.spec.layers[1].attention.output_bias);
  EXPECT_EQ(Experts(config).top_k, 4);
  EXPECT_EQ(Experts(config).activation, Activation::kClampedSwiglu);
  EXPECT_FLOAT_EQ(Experts(config).clamp.alpha, 1.702f);
  EXPECT_EQ(config.max_position_embeddings, 131072);
  // By default, transformers scales RoPE.
  const ModelConfig plain = ParseLayers(kGptOss, R"({"num_local_experts": 32})");
  ASSERT_TRUE(plain.rope.scaling);
  EXPECT_EQ(plain.rope.scaling->kind, RopeKind::kYarn);
  EXPECT_EQ(plain.rope.scaling->factor, 32);
  EXPECT_FALSE(plain.rope.scaling->truncate);
}

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

std::vector<bool> LayersWithRope(const ModelConfig& config) {
  std::vector<bool> layers;
  for (const LayerSpec& layer : config.spec.layers) layers.push_back(layer.attention.rope);
  return layers;
}

// Families with the same architecture name differ by model_type; published files may use another
// name.
TEST(FamilyNamesTest, TypesTellArchitecturesOfOneNameApart) {
  EXPECT_EQ(ParseLayers("LlamaForCausalLM", R"({"model_type": "internlm3"})").model_type,
            "internlm3");
  EXPECT_EQ(ParseLayers("InternLM3ForCausalLM", R"({"model_type": "internlm3"})").model_type,
            "internlm3");
  EXPECT_EQ(ParseLayers("InternLM3ForCausalLM", "{}").model_type, "internlm3");
  EXPECT_EQ(ParseLayers("LlamaForCausalLM", "{}").model_type, "llama");
  EXPECT_EQ(ParseLayers("Glm4MoeForCausalLM", "{}").model_type, "glm4_moe");
  EXPECT_EQ(LayerFailure("LlamaForCausalLM", R"({"model_type": "qwen3"})"),
            "architecture LlamaForCausalLM with model_type 'qwen3' is not supported, expected "
            "model_type 'llama'");
  const std::vector<std::string> names = SupportedArchitectures();
  EXPECT_EQ(std::count(names.begin(), names.end(), "LlamaForCausalLM"), 1);
}

TEST(MiniMaxTest, RotatesThePartThatEitherFieldGives) {
  constexpr const char* kName = "MiniMaxM2ForCausalLM";
  EXPECT_EQ(ParseLayers(kName, R"({"rotary_dim": 12})").spec.layers[0].attention.rotated(), 12);
  EXPECT_EQ(ParseLayers(kName, R"({"rotary_dim": 12, "rope_parameters": {
      "rope_type": "default", "partial_rotary_factor": 0.5}})")
                .spec.layers[0]
                .attention.rotated(),
            16);
  EXPECT_EQ(ParseLayers(kName, "{}").spec.layers[0].attention.rotated(), 32);
  // An odd rotary_dim has (rotary_dim + 1) / 2 frequencies and is the divisor of their exponents.
  const ModelConfig odd = ParseLayers(kName, R"({"rotary_dim": 7})");
  EXPECT_EQ(odd.spec.layers[0].attention.rotated(), 8);
  ASSERT_EQ(odd.spec.rope_tables[0].size(), 4U);
  EXPECT_FLOAT_EQ(odd.spec.rope_tables[0][3],
                  static_cast<float>(std::pow(odd.rope.theta, -6.0 / 7)));
  EXPECT_THAT(LayerFailure(kName, R"({"rotary_dim": 7, "rope_scaling": {"rope_type": "linear",
      "factor": 2}})"),
              HasSubstr("even number"));
  EXPECT_THAT(LayerFailure(kName, R"({"rotary_dim": 64})"), HasSubstr("rotary_dim"));
}

TEST(HunyuanTest, AnAlphaRaisesTheBase) {
  const auto rope = [](const char* scaling) {
    const ModelConfig config =
        ParseLayers("HunYuanDenseV1ForCausalLM",
                    fmt::format(R"({{"rope_theta": 10000.0, "rope_scaling": {}}})", scaling));
    return config.spec.rope_tables[0];
  };
  const std::vector<float> plain = rope("null");
  const std::vector<float> raised = rope(R"({"type": "dynamic", "alpha": 1000.0, "factor": 1.0})");
  // Source: transformers' HunYuanDenseV1RotaryEmbedding, with heads of 32.
  EXPECT_EQ(raised[0], 1);
  EXPECT_NEAR(raised[1], plain[1] * std::pow(1000.0, -2.0 / 30), 1e-7);
  EXPECT_THAT(LayerFailure("HunYuanDenseV1ForCausalLM",
                           R"({"rope_scaling": {"type": "dynamic", "alpha": 0.5}})"),
              HasSubstr("rope_scaling.alpha"));
}

TEST(HunyuanTest, LayersMayVisitOtherNumbersOfExperts) {
  constexpr const char* kName = "HunYuanMoEV1ForCausalLM";
  const ModelConfig config = ParseLayers(kName, R"({"num_experts": 8, "moe_topk": [1, 2, 3, 8]})");
  EXPECT_EQ(config.spec.layers[2].moe->top_k, 3);
  EXPECT_EQ(config.spec.layers[3].moe->top_k, 8);
  for (const char* top_k : {"9", "0", "[1, 2]", "[1, 2, 3, 9]", "\"two\""}) {
    EXPECT_THAT(LayerFailure(kName, fmt::format(R"({{"num_experts": 8, "moe_topk": {}}})", top_k)),
                HasSubstr("moe_topk"));
  }
}

TEST(Ernie45Test, LayersWithExperts) {
  constexpr const char* kName = "Ernie4_5_MoeForCausalLM";
  EXPECT_THAT(LayersWithExperts(ParseLayers(kName, "{}")), ElementsAre(false, true, true, true));
  EXPECT_THAT(LayersWithExperts(
                  ParseLayers(kName, R"({"moe_layer_start_index": 0, "moe_layer_end_index": 2})")),
              ElementsAre(true, true, true, false));
  EXPECT_THAT(LayersWithExperts(
                  ParseLayers(kName, R"({"moe_layer_interval": 2, "moe_layer_end_index": -1})")),
              ElementsAre(false, true, false, true));
}

TEST(ExaoneTest, LayersThatSeeEverythingHaveNoRopeWhereOthersHaveWindows) {
  constexpr const char* kName = "Exaone4ForCausalLM";
  const ModelConfig mixed = ParseLayers(kName, R"({"sliding_window": 8})");
  EXPECT_THAT(LayersWithRope(mixed), ElementsAre(true, true, true, false));
  EXPECT_THAT(Windows(mixed), ElementsAre(8, 8, 8, 0));
  const ModelConfig full = ParseLayers(kName, R"({"sliding_window": null})");
  EXPECT_THAT(LayersWithRope(full), ElementsAre(true, true, true, true));
  EXPECT_THAT(Windows(full), ElementsAre(0, 0, 0, 0));
  // Published files give the pattern as letters, which are accepted beside layer_types.
  EXPECT_THAT(Windows(ParseLayers(kName, R"({"sliding_window": 8, "sliding_window_pattern": "LG",
      "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]})")),
              ElementsAre(8, 0, 8, 0));
  EXPECT_THAT(LayerFailure(kName, R"({"sliding_window_pattern": "LLLG"})"),
              HasSubstr("sliding_window_pattern"));
  EXPECT_THAT(LayerFailure(kName, R"({"sliding_window": null,
      "layer_types": ["sliding_attention", "full_attention", "full_attention", "full_attention"]})"),
              HasSubstr("sliding_window"));
  constexpr const char* kMoe = "ExaoneMoeForCausalLM";
  EXPECT_THAT(LayersWithExperts(ParseLayers(kMoe, R"({"num_experts": 8,
      "mlp_layer_types": ["sparse", "dense", "sparse", "dense"]})")),
              ElementsAre(true, false, true, false));
  for (const char* types : {R"(["sparse"])", R"(["sparse", "dense", "sparse", "thin"])", "7"}) {
    EXPECT_THAT(LayerFailure(kMoe, fmt::format(R"({{"mlp_layer_types": {}}})", types)),
                HasSubstr("mlp_layer_types"));
  }
}

TEST(CohereTest, LayersOfNormsAndRope) {
  const ModelConfig config =
      ParseLayers("Cohere2ForCausalLM", R"({"sliding_window": 8, "sliding_window_pattern": 2,
          "layer_norm_eps": 0.125, "rms_norm_eps": 0.5})");
  EXPECT_THAT(LayersWithRope(config), ElementsAre(true, false, true, false));
  EXPECT_EQ(config.spec.norm.kind, NormSpec::Kind::kLayer);
  EXPECT_EQ(config.spec.norm_eps, 0.125F);
  EXPECT_TRUE(config.spec.layers[0].is_parallel);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_THAT(LayerFailure("CohereForCausalLM", R"({"norm_type": "rms_norm"})"),
              HasSubstr("supported is layernorm"));
  ParseLayers("Starcoder2ForCausalLM", R"({"norm_type": "layer_norm"})");
}

TEST(PhimoeTest, TwoExpertsAndOneAmplitude) {
  constexpr const char* kName = "PhiMoEForCausalLM";
  EXPECT_THAT(LayerFailure(kName, R"({"num_experts_per_tok": 3})"),
              HasSubstr("num_experts_per_tok 3"));
  EXPECT_THAT(LayerFailure(kName, R"({"lm_head_bias": true, "tie_word_embeddings": true})"),
              HasSubstr("lm_head_bias"));
  const auto scaled = [](const char* mscales) {
    std::string factors = "1";
    for (int i = 1; i < 16; ++i) factors += ", 1";
    return fmt::format(R"({{"original_max_position_embeddings": 64, "rope_scaling": {{
        "type": "longrope", "short_factor": [{0}], "long_factor": [{0}]{1}}}}})",
                       factors, mscales);
  };
  const ModelConfig config =
      ParseLayers(kName, scaled(R"(, "short_mscale": 1.25, "long_mscale": 1.25)"));
  EXPECT_NEAR(config.spec.layers[0].attention.softmax_scale(), 1.5625 / std::sqrt(32.0), 1e-6);
  EXPECT_THAT(LayerFailure(kName, scaled("")), HasSubstr("short_mscale"));
  EXPECT_THAT(LayerFailure(kName, scaled(R"(, "short_mscale": 1.25, "long_mscale": 1.5)")),
              HasSubstr("long_mscale"));
}

TEST(FalconTest, GenerationsDifferInHeadsAndNorms) {
  constexpr const char* kName = "FalconForCausalLM";
  const ModelConfig old = ParseLayers(kName, R"({"num_key_value_heads": null})");
  EXPECT_EQ(old.spec.layers[0].attention.num_kv_heads, 1);
  EXPECT_EQ(old.spec.layers[0].mlp_norms.before, "input_layernorm");
  EXPECT_EQ(old.spec.layers[0].mlp.intermediate_size, 512);
  const ModelConfig grouped =
      ParseLayers(kName, R"({"new_decoder_architecture": true, "num_kv_heads": 2})");
  EXPECT_EQ(grouped.spec.layers[0].attention.num_kv_heads, 2);
  EXPECT_EQ(grouped.spec.layers[0].attention_norms.before, "ln_attn");
  EXPECT_EQ(grouped.spec.layers[0].mlp_norms.before, "ln_mlp");
  const ModelConfig apart = ParseLayers(kName, R"({"parallel_attn": false, "multi_query": false})");
  EXPECT_FALSE(apart.spec.layers[0].is_parallel);
  EXPECT_EQ(apart.spec.layers[0].attention.num_kv_heads, 4);
  EXPECT_THAT(LayerFailure(kName, R"({"alibi": true})"), HasSubstr("ALiBi"));
  EXPECT_THAT(LayerFailure(kName, R"({"multi_query": false, "num_kv_heads": 3})"),
              HasSubstr("num_kv_heads"));
  EXPECT_THAT(LayerFailure(kName, R"({"num_ln_in_parallel_attn": 2})"),
              HasSubstr("num_ln_in_parallel_attn"));
  EXPECT_THAT(LayerFailure(kName, R"({"new_decoder_architecture": true, "parallel_attn": false})"),
              HasSubstr("parallel_attn"));
}

// A field's older name applies only if its current name is absent.
TEST(AliasTest, OlderNamesOfFields) {
  constexpr const char* kName = "GPTNeoXForCausalLM";
  EXPECT_EQ(ParseLayers(kName, R"({"rotary_pct": 0.5})").spec.layers[0].attention.rotated(), 16);
  EXPECT_EQ(ParseLayers(kName, R"({"rotary_pct": 0.5, "partial_rotary_factor": 1.0})")
                .spec.layers[0]
                .attention.rotated(),
            32);
  EXPECT_THAT(LayerFailure(kName, R"({"rotary_pct": "half"})"), HasSubstr("partial_rotary_factor"));
  EXPECT_TRUE(ParseLayers("LlamaForCausalLM", R"({"model_type": "internlm3", "qkv_bias": true})")
                  .spec.layers[0]
                  .attention.qkv_bias);
  EXPECT_THAT(LayerFailure("PhiForCausalLM", R"({"tie_word_embeddings": true})"),
              HasSubstr("tie_word_embeddings"));
  EXPECT_THAT(LayerFailure("OlmoeForCausalLM", R"({"clip_qkv": 8.0})"), HasSubstr("clip_qkv"));
}

TEST(GraniteSwaTest, LayersHaveRopesOfTheirOwn) {
  constexpr const char* kName = "GraniteSWAForCausalLM";
  const ModelConfig config =
      ParseLayers(kName, R"({"rope_theta": 500.0, "layer_rope_theta": [0, 500.0, 80.0, 80]})");
  EXPECT_THAT(LayersWithRope(config), ElementsAre(false, true, true, true));
  EXPECT_EQ(config.spec.layers[1].attention.rope_table, 0);
  EXPECT_EQ(config.spec.layers[2].attention.rope_table, 1);
  EXPECT_EQ(config.spec.layers[3].attention.rope_table, 1);
  EXPECT_EQ(config.spec.rope_tables.size(), 2u);
  EXPECT_THAT(Windows(config), ElementsAre(0, 128, 128, 128));
  for (const char* thetas : {"[0, 1]", "[0, 1, 2, -1]", "[0, 1, 2, true]", "7"}) {
    EXPECT_THAT(LayerFailure(kName, fmt::format(R"({{"layer_rope_theta": {}}})", thetas)),
                HasSubstr("layer_rope_theta"));
  }
}

// Contexts within the original positions are not scaled, as in transformers.
TEST(DynamicRopeTest, TheLongestContextDecides) {
  const ModelConfig plain = ParseLayers("LlamaForCausalLM", "{}");
  ModelConfig config = ParseLayers("LlamaForCausalLM", R"({"max_position_embeddings": 64,
      "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}})");
  EXPECT_EQ(config.max_position_embeddings, 256);
  config.spec.FitRope(64);
  EXPECT_EQ(config.spec.rope_tables, plain.spec.rope_tables);
  config.spec.FitRope(65);
  EXPECT_NE(config.spec.rope_tables, plain.spec.rope_tables);
}

Result<ModelConfig> StepWith(std::string_view changes) {
  json::Value text = With("", R"({"model_type": "step3p5", "n_routed_experts": 8,
      "num_sliding_attention_heads": 6, "sliding_window": 8,
      "layer_types": ["full_attention", "sliding_attention", "full_attention", "sliding_attention"],
      "rope_parameters": {"full_attention": {"partial_rotary_factor": 0.5, "rope_theta": 50000.0},
                          "sliding_attention": {"rope_theta": 10000.0}}})");
  const json::Value overlay = Json(changes);
  for (const auto& [key, value] : overlay.as_object()) text.Set(key, value);
  json::Value config = Json(R"({"architectures": ["Step3p7ForConditionalGeneration"],
      "model_type": "step3p7", "vision_config": {}})");
  config.Set("text_config", text);
  return ParseModelConfig(config);
}

TEST(StepTest, LayersHaveHeadsRopesAndLimitsOfTheirOwn) {
  const auto config = StepWith(R"({"swiglu_limits": [null, 0.0, 7, 7, 7],
      "swiglu_limits_shared": [null, null, null, 16], "num_nextn_predict_layers": 1,
      "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"], "query_pre_attn_scalar": 16})");
  ASSERT_TRUE(config) << config.error().message;
  const std::vector<LayerSpec>& layers = config->spec.layers;
  EXPECT_EQ(layers[0].attention.num_heads, 4);
  EXPECT_EQ(layers[1].attention.num_heads, 6);
  EXPECT_EQ(layers[0].attention.rotated(), 16);
  EXPECT_EQ(layers[1].attention.rotated(), 32);
  EXPECT_EQ(layers[0].attention.softmax_scale(), 0.25F);
  EXPECT_EQ(layers[1].moe->limit, 0);
  EXPECT_EQ(layers[2].moe->limit, 7);
  EXPECT_EQ(layers[2].mlp.limit, 0);
  EXPECT_EQ(layers[3].mlp.limit, 16);
  EXPECT_EQ(config->spec.num_draft_layers, 1);
  const auto padded =
      StepWith(R"({"per_layer_config": {"01": {"num_attention_heads": 8}, "03": {}}})");
  ASSERT_TRUE(padded) << padded.error().message;
  EXPECT_EQ(padded->spec.layers[1].attention.num_heads, 8);
  EXPECT_EQ(padded->spec.layers[3].attention.num_heads, 4);
}

TEST(StepTest, WhatIsRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"num_sliding_attention_heads": 5})", "num_sliding_attention_heads"},
      {R"({"per_layer_config": {"9": {}}})", "per_layer_config.9"},
      {R"({"per_layer_config": {"1": {"head_dim": 8}}})", "per_layer_config.1"},
      {R"({"swiglu_limits": [1, 2]})", "swiglu_limits"},
      {R"({"swiglu_limits": [1, 2, "x", null]})", "swiglu_limits"},
      {R"({"use_bidirectional_attention": true})", "use_bidirectional_attention"},
      {R"({"rope_parameters": {"full_attention": {}}})", "sliding_attention"},
      {R"({"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 2},
          "sliding_attention": {}}})",
       "rope_parameters.full_attention.rope_type"},
      {R"({"rope_parameters": {"full_attention": {"partial_rotary_factor": 0.1},
          "sliding_attention": {}}})",
       "partial_rotary_factor"},
  };
  for (const auto& [changes, words] : cases) {
    const auto config = StepWith(changes);
    ASSERT_FALSE(config) << changes;
    EXPECT_THAT(config.error().message, HasSubstr(words)) << changes;
  }
}

TEST(MuseGlimmerTest, LayersAreCountedFromTheLast) {
  json::Value text = With("", R"({"model_type": "muse_glimmer_text", "num_hidden_layers": 5})");
  json::Value config = Json(R"({"architectures": ["MuseGlimmerForConditionalGeneration"],
      "model_type": "muse_glimmer", "vision_config": {}})");
  const auto parse = [&] {
    config.Set("text_config", text);
    return ParseModelConfig(config);
  };
  const auto parsed = parse();
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_THAT(LayersWithRope(*parsed), ElementsAre(false, true, true, true, false));
  EXPECT_THAT(Windows(*parsed), ElementsAre(0, 2048, 2048, 2048, 0));
  EXPECT_EQ(parsed->spec.after_norm_eps, 1e-8F);
  EXPECT_THAT(parsed->spec.placeholders, ElementsAre(-1, -1));
  config.Set("image_token_id", int64_t{7});
  EXPECT_THAT(parse()->spec.placeholders, ElementsAre(7, -1));
  config.Set("image_token_id", "seven");
  EXPECT_THAT(parse().error().message, HasSubstr("image_token_id"));
  config.Set("image_token_id", int64_t{7});
  text.Set("layer_rope_theta", Json("[0, 1.0, 0, 1.0, 1.0]"));
  EXPECT_THAT(LayersWithRope(*parse()), ElementsAre(false, true, false, true, true));
  for (const char* thetas : {"[0, 1.0]", "[0, 1, 0, 1, \"x\"]"}) {
    text.Set("layer_rope_theta", Json(thetas));
    EXPECT_THAT(parse().error().message, HasSubstr("layer_rope_theta"));
  }
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
    // The golden tests' bound of errors.
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
