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

// A configuration of `architecture` with four layers and `changes` laid over it; a null takes a
// field away.
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
  EXPECT_THAT(LayerFailure(kLlama4, R"({"num_local_experts": 4, "moe_layers": [0]})"),
              HasSubstr("intermediate_size_mlp is missing"));
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
  // As transformers 5 writes it; norm_topk_prob is false where it is absent.
  const ModelConfig newer = ParseLayers(
      kQwen3Moe,
      R"({"num_local_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 96})");
  EXPECT_EQ(Experts(newer).num_experts, 8);
  EXPECT_FALSE(Experts(newer).normalize);
  EXPECT_THAT(LayerFailure(kQwen3Moe, base + R"("use_sliding_window": true})"),
              HasSubstr("use_sliding_window"));
  EXPECT_THAT(LayerFailure(kQwen3Moe, base + R"("mlp_only_layers": [4]})"),
              HasSubstr("mlp_only_layers"));
  EXPECT_THAT(LayerFailure(kQwen3Moe, base + R"("num_experts_per_tok": 9})"),
              HasSubstr("num_experts_per_tok"));
  EXPECT_THAT(LayerFailure(kQwen3Moe, R"({"num_experts": 8})"), HasSubstr("num_experts_per_tok"));
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
    // The window counts only where use_sliding_window says so.
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
  EXPECT_THAT(LayerFailure("Qwen2MoeForCausalLM", R"({"num_experts": 8})"),
              HasSubstr("moe_intermediate_size"));
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
  // sqrt(1 + log(32) / log(4096)): where a part is not rotated the rotation has the factor.
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
  EXPECT_THAT(LayerFailure(kPhi3, R"({"partial_rotary_factor": 0.1})"),
              HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(LayerFailure("LlamaForCausalLM", R"({"partial_rotary_factor": 0.5})"),
              HasSubstr("partial_rotary_factor 0.5 is not supported by LlamaForCausalLM"));
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
  // YaRN's factor counts in the layers that it scales.
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
  EXPECT_THAT(LayerFailure(kHybrid, "{" + layers + R"(, "num_local_experts": 62})"),
              HasSubstr("num_local_experts 62"));
  EXPECT_THAT(LayerFailure(kHybrid, R"({"layer_types": ["mamba", "mamba", "mamba", "attention"]})"),
              HasSubstr("'mamba' is not supported"));
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
  EXPECT_THAT(LayerFailure(kGlm, base + R"(, "n_group": 4})"), HasSubstr("n_group 4"));
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
  EXPECT_THAT(LayerFailure(kGptOss, R"({"num_local_experts": 32})"),
              HasSubstr("rope_parameters is missing"));
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

// Of two flags that say otherwise neither counts, but whether the files hold a head.
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

// Published configurations of Gemma 3 with images leave out what is the library's default.
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

// The layout of Gemma 4's E2B: as published, in text_config.
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
  // A quarter of the wide heads is rotated.
  const std::vector<float>& rope = config->spec.rope_tables[0];
  ASSERT_EQ(rope.size(), 256U);
  EXPECT_GT(rope[63], 0);
  EXPECT_EQ(rope[64], 0);
  EXPECT_EQ(config->spec.rope_tables[1].size(), 128U);
}

// What transformers writes since 5.20.
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

TEST(RegistryTest, EveryFamilyIsDescribed) {
  for (const ModelFamily* family : ModelFamilies()) {
    EXPECT_FALSE(family->notes.models.empty()) << family->architecture;
    EXPECT_FALSE(family->notes.operators.empty()) << family->architecture;
    EXPECT_EQ(family->notes.error > 0, !family->notes.golden.empty()) << family->architecture;
    // What the golden tests allow.
    EXPECT_LE(family->notes.error, 2e-4) << family->architecture;
  }
}

TEST(LayerConfigTest, ContradictionsAreNamed) {
  EXPECT_THAT(LayerFailure(kLlama4, "{}"), HasSubstr("num_local_experts"));
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
