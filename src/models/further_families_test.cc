// Tests config.json fields of the families in tools/checkpoints/further_variants.py, and errors for
// wrong values.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json_testing.h"
#include "models/checkpoint_copy_testing.h"
#include "models/model_config.h"
#include "models/model_task.h"

namespace sluice {
namespace {

using testing::CheckpointCopy;
using testing::DataFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Json;
using testing::SmallOptions;

json::Value ConfigOf(std::string_view architecture, std::string_view changes) {
  json::Value config = Json(R"({"vocab_size": 512, "hidden_size": 128, "intermediate_size": 64,
      "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
      "max_position_embeddings": 2048, "dtype": "bfloat16"})");
  config.Set("architectures", json::Value::Array{std::string(architecture)});
  const json::Value overlay = Json(changes);
  for (const auto& [key, value] : overlay.as_object()) config.Set(key, value);
  return config;
}

ModelConfig ParsedOf(std::string_view architecture, std::string_view changes) {
  auto config = ParseModelConfig(ConfigOf(architecture, changes));
  EXPECT_TRUE(config) << changes << (config ? "" : config.error().message);
  return config ? *std::move(config) : ModelConfig{};
}

std::string FailureOf(std::string_view architecture, std::string_view changes) {
  const auto config = ParseModelConfig(ConfigOf(architecture, changes));
  EXPECT_FALSE(config) << changes;
  return config ? "" : config.error().message;
}

template <typename T>
std::vector<T> OfLayers(const ModelConfig& config, T (*field)(const LayerSpec& layer)) {
  std::vector<T> values;
  for (const LayerSpec& layer : config.spec.layers) values.push_back(field(layer));
  return values;
}

std::vector<int> RopesOf(const ModelConfig& config) {
  return OfLayers<int>(config, [](const LayerSpec& layer) { return int{layer.attention.rope}; });
}
std::vector<int> WindowsOf(const ModelConfig& config) {
  return OfLayers<int>(config,
                       [](const LayerSpec& layer) { return int{layer.attention.span.window}; });
}
std::vector<int> HasExperts(const ModelConfig& config) {
  return OfLayers<int>(config, [](const LayerSpec& layer) { return int{layer.moe.has_value()}; });
}

TEST(LagunaTest, LayersHaveHeadsAndRopesOfTheirOwn) {
  constexpr const char* kName = "LagunaForCausalLM";
  const ModelConfig config = ParsedOf(kName, R"({"sliding_window": 8, "gating": "per-head",
      "num_attention_heads_per_layer": [4, 8, 4, 4], "num_experts": 16,
      "layer_types": ["full_attention", "sliding_attention", "full_attention", "full_attention"],
      "rope_parameters": {"sliding_attention": {"rope_theta": 100.0, "partial_rotary_factor": 1.0},
          "full_attention": {"rope_theta": 1000.0, "partial_rotary_factor": 0.5}}})");
  EXPECT_THAT(WindowsOf(config), ElementsAre(0, 8, 0, 0));
  EXPECT_THAT(HasExperts(config), ElementsAre(0, 1, 1, 1));
  EXPECT_EQ(config.spec.layers[1].attention.num_heads, 8);
  EXPECT_EQ(config.spec.layers[1].attention.rotated(), 32);
  EXPECT_EQ(config.spec.layers[0].attention.rotated(), 16);
  EXPECT_EQ(config.spec.layers[0].attention.gate, AttentionGate::kEachHead);
  EXPECT_NEAR(config.spec.rope_tables[1][1], std::pow(100.0, -1.0 / 16), 1e-6);
  // As in transformers, false means a gate per element.
  const ModelConfig plain = ParsedOf(kName, R"({"gating": false, "num_experts": 16})");
  EXPECT_EQ(plain.spec.layers[0].attention.gate, AttentionGate::kEachNumber);
  EXPECT_EQ(plain.spec.layers[0].attention.rotated(), 16);
  EXPECT_EQ(plain.rope.theta, 500000);
  EXPECT_THAT(FailureOf(kName, R"({"gating": "per-row"})"),
              HasSubstr("gating must be true, false"));
  EXPECT_THAT(FailureOf(kName, R"({"num_attention_heads_per_layer": [4]})"),
              HasSubstr("num_attention_heads_per_layer must be a list of num_hidden_layers 4"));
  EXPECT_THAT(FailureOf(kName, R"({"num_attention_heads_per_layer": [4, 4, 3, 4]})"),
              HasSubstr("multiples of num_key_value_heads 2, found 3"));
  EXPECT_THAT(FailureOf(kName, R"({"moe_apply_router_weight_on_input": true})"),
              HasSubstr("moe_apply_router_weight_on_input"));
  EXPECT_THAT(FailureOf(kName, R"({"rope_parameters": {"sliding_attention": {}}})"),
              HasSubstr("rope_parameters.full_attention is missing"));
  EXPECT_THAT(FailureOf(kName, R"({"layer_types": ["sliding_attention", "full_attention",
      "full_attention", "full_attention"], "rope_parameters": {"full_attention": {},
      "sliding_attention": {"rope_type": "yarn", "factor": 2.0}}})"),
              HasSubstr("rope_parameters.sliding_attention.rope_type 'yarn' is not supported"));
  EXPECT_THAT(FailureOf(kName, R"({"rope_parameters": {"full_attention": {
      "partial_rotary_factor": 0.01}}})"),
              HasSubstr("rope_parameters.full_attention.partial_rotary_factor"));
}

TEST(KolibriTest, EveryFifthLayerSeesEverythingWithoutRope) {
  const ModelConfig config =
      ParsedOf("Kolibri1ForCausalLM", R"({"num_hidden_layers": 6, "sliding_window": 8})");
  EXPECT_THAT(WindowsOf(config), ElementsAre(8, 8, 8, 8, 0, 8));
  EXPECT_THAT(RopesOf(config), ElementsAre(1, 1, 1, 1, 0, 1));
  EXPECT_TRUE(config.spec.layers[0].moe->chooses_by_logits);
  EXPECT_FALSE(config.spec.layers[0].moe->normalize);
  EXPECT_THAT(FailureOf("Kolibri1ForCausalLM", R"({"layer_types": ["linear_attention",
      "full_attention", "full_attention", "full_attention"]})"),
              HasSubstr("layer_types 'linear_attention' is not supported"));
}

TEST(Cohere2MoeTest, TheFirstLayersHaveAPatternOfTheirOwn) {
  constexpr const char* kName = "Cohere2MoeForCausalLM";
  const ModelConfig config = ParsedOf(kName, R"({"first_k_dense_replace": 1, "sliding_window": 8,
      "sliding_window_pattern": 2, "num_shared_experts": 2, "prefix_dense_intermediate_size": 48})");
  EXPECT_THAT(WindowsOf(config), ElementsAre(0, 8, 0, 8));
  // Layer 0 attends to all positions, but keeps RoPE because it has no experts.
  EXPECT_THAT(RopesOf(config), ElementsAre(1, 1, 0, 1));
  EXPECT_THAT(HasExperts(config), ElementsAre(0, 1, 1, 1));
  EXPECT_EQ(config.spec.layers[0].mlp.intermediate_size, 48);
  EXPECT_EQ(config.spec.layers[1].mlp.intermediate_size, 128);
  EXPECT_EQ(config.spec.layers[1].mlp.output_factor, 0.5F);
  EXPECT_EQ(config.spec.layers[1].moe->weight_scale, 0.5F);
  EXPECT_EQ(config.spec.norm.kind, NormSpec::Kind::kLayer);
  const ModelConfig other = ParsedOf(kName, R"({"rms_norm_eps": 0.25, "num_shared_experts": 1,
      "first_k_dense_replace": 2, "prefix_dense_sliding_window_pattern": 2,
      "shared_expert_combination_strategy": "sum"})");
  EXPECT_THAT(RopesOf(other), ElementsAre(1, 0, 1, 1));
  EXPECT_EQ(other.spec.norm.kind, NormSpec::Kind::kRms);
  EXPECT_EQ(other.spec.norm_eps, 0.25F);
  EXPECT_EQ(other.spec.layers[3].moe->weight_scale, 1);
  EXPECT_THAT(FailureOf(kName, R"({"expert_selection_fn": "argmax"})"),
              HasSubstr("expert_selection_fn 'argmax' is not supported"));
  EXPECT_THAT(FailureOf(kName, R"({"shared_expert_combination_strategy": "max"})"),
              HasSubstr("shared_expert_combination_strategy 'max'"));
}

TEST(GptJTest, PartsOfHeadsAndOfTensors) {
  constexpr const char* kName = "GPTJForCausalLM";
  EXPECT_EQ(ParsedOf(kName, R"({"rotary_dim": 8})").spec.layers[0].attention.rotated(), 8);
  EXPECT_EQ(ParsedOf(kName, R"({"head_dim": 128})").spec.layers[0].attention.rotated(), 64);
  EXPECT_EQ(ParsedOf(kName, R"({"rotary_dim": 8, "n_inner": null})").intermediate_size, 512);
  EXPECT_THAT(FailureOf(kName, "{}"), HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(FailureOf(kName, R"({"rotary_dim": 8, "tie_word_embeddings": true})"),
              HasSubstr("tie_word_embeddings"));
  EXPECT_THAT(FailureOf("CodeGenForCausalLM", R"({"rotary_dim": 8, "num_attention_heads": 6,
      "num_key_value_heads": null})"),
              HasSubstr("n_head must be a multiple of 4"));
}

TEST(NanoChatTest, TurnsTheOtherWay) {
  const ModelConfig config = ParsedOf("NanoChatForCausalLM", "{}");
  EXPECT_EQ(config.spec.rope_tables[0][0], -1);
  EXPECT_EQ(config.spec.logit_soft_cap, 15);
  EXPECT_EQ(
      ParsedOf("NanoChatForCausalLM", R"({"final_logit_softcapping": null})").spec.logit_soft_cap,
      0);
}

TEST(LaraMiniTest, ThreeKindsOfLayers) {
  const ModelConfig config = ParsedOf("LaraMiniForCausalLM", R"({"num_hidden_layers": 5})");
  EXPECT_THAT(WindowsOf(config), ElementsAre(0, 512, 0, 0, 512));
  EXPECT_THAT(
      OfLayers<int>(config, [](const LayerSpec& layer) { return int{layer.mixer.has_value()}; }),
      ElementsAre(1, 0, 1, 0, 0));
  EXPECT_FALSE(config.spec.layers[3].attention.rope);
}

TEST(Axk1Test, NormsStandBehindExpertsAlone) {
  const ModelConfig config = ParsedOf("AXK1ForCausalLM", R"({"num_key_value_heads": 4,
      "n_routed_experts": 16, "first_k_dense_replace": 2})");
  EXPECT_THAT(HasExperts(config), ElementsAre(0, 0, 1, 1));
  EXPECT_EQ(config.spec.layers[1].mlp_norms.after, "");
  EXPECT_EQ(config.spec.layers[2].mlp_norms.after, "post_mlp_layernorm");
  EXPECT_THAT(config.spec.unread_modules, ElementsAre("model.layers.0.post_mlp_layernorm.",
                                                      "model.layers.1.post_mlp_layernorm."));
  EXPECT_THAT(FailureOf("AXK1ForCausalLM", R"({"num_key_value_heads": 4, "q_lora_rank": null})"),
              HasSubstr("q_lora_rank null is not supported"));
}

TEST(MimoV2FlashTest, ValuesAndWindows) {
  constexpr const char* kName = "MiMoV2FlashForCausalLM";
  const ModelConfig config = ParsedOf(kName, R"({"num_hidden_layers": 6, "v_head_dim": 24,
      "num_key_value_heads": 1, "sliding_window_size": 8, "routed_scaling_factor": null})");
  EXPECT_THAT(WindowsOf(config), ElementsAre(0, 9, 9, 9, 9, 0));
  EXPECT_EQ(config.spec.layers[0].attention.narrow_value_dim, 24);
  EXPECT_EQ(config.spec.layers[0].attention.output_width(), 96);
  EXPECT_EQ(config.spec.layers[1].attention.num_kv_heads, 2);
  EXPECT_TRUE(config.spec.layers[1].attention.sinks);
  EXPECT_EQ(config.spec.layers[1].attention.output_factor, 0.707F);
  EXPECT_EQ(config.spec.layers[0].attention.rotated(), 10);
  EXPECT_EQ(ParsedOf(kName, R"({"v_head_dim": 32, "attention_value_scale": null})")
                .spec.layers[0]
                .attention.output_factor,
            1);
  EXPECT_THAT(FailureOf(kName, R"({"v_head_dim": 48})"),
              HasSubstr("v_head_dim 48 is not supported; supported are numbers up to head_dim 32"));
  EXPECT_THAT(FailureOf(kName, R"({"v_head_dim": 24, "num_key_value_heads": 4})"),
              HasSubstr("num_key_value_heads must be a divisor of half of num_attention_heads 4"));
}

// Instead of scaling the residual in each sublayer, the program stores it unscaled and enlarges the
// epsilon of each norm accordingly.
TEST(BeamTest, EpsilonsGrowWithTheDepth) {
  constexpr const char* kName = "BeamForCausalLM";
  const ModelConfig config = ParsedOf(kName, R"({"num_experts": 16, "sliding_window": 8})");
  EXPECT_THAT(WindowsOf(config), ElementsAre(8, 8, 8, 0));
  EXPECT_THAT(RopesOf(config), ElementsAre(1, 1, 1, 0));
  EXPECT_EQ(config.spec.layers[0].attention_norms.eps_factor, 1);
  EXPECT_EQ(config.spec.layers[3].mlp_norms.eps_factor, 8);
  EXPECT_EQ(config.spec.final_norm_eps_factor, 9);
  EXPECT_FALSE(config.spec.layers[0].attention.temperature_tuning);
  EXPECT_EQ(config.spec.layers[3].attention.temperature_tuning->power, 0.1);
  EXPECT_THAT(FailureOf(kName, R"({"num_experts": 16, "n_group": 5})"), HasSubstr("n_group"));
}

TEST(Gpt2Test, PositionsAreLearnt) {
  const ModelConfig config = ParsedOf("GPT2LMHeadModel", R"({"max_position_embeddings": 64,
      "scale_attn_by_inverse_layer_idx": true})");
  EXPECT_EQ(NativeTask(config), ModelTask::kGenerate);
  EXPECT_EQ(config.spec.positions.rows, 64);
  EXPECT_EQ(config.max_position_embeddings, 64);
  EXPECT_THAT(RopesOf(config), ElementsAre(0, 0, 0, 0));
  EXPECT_FLOAT_EQ(config.spec.layers[1].attention.softmax_scale(), 0.5F / std::sqrt(32.0F));
  EXPECT_EQ(ParsedOf("GPT2LMHeadModel", R"({"scale_attn_weights": false})")
                .spec.layers[1]
                .attention.softmax_scale(),
            1);
  EXPECT_THAT(FailureOf("GPT2LMHeadModel", R"({"add_cross_attention": true})"),
              HasSubstr("add_cross_attention"));
  EXPECT_THAT(
      FailureOf("GPT2LMHeadModel", R"({"rope_scaling": {"type": "linear", "factor": 2.0}})"),
      HasSubstr("rope_scaling is not supported"));
  EXPECT_EQ(ParsedOf("GPTBigCodeForCausalLM", "{}").num_key_value_heads, 1);
  EXPECT_EQ(ParsedOf("GPTBigCodeForCausalLM", R"({"multi_query": false})").num_key_value_heads, 4);
  EXPECT_EQ(ParsedOf("OPTForCausalLM", "{}").spec.positions.first, 2);
  EXPECT_FALSE(ParsedOf("OPTForCausalLM", R"({"enable_bias": false})").spec.layers[0].mlp.has_bias);
  EXPECT_THAT(FailureOf("OPTForCausalLM", R"({"do_layer_norm_before": false})"),
              HasSubstr("do_layer_norm_before false"));
  EXPECT_THAT(FailureOf("OPTForCausalLM", R"({"word_embed_proj_dim": 64})"),
              HasSubstr("word_embed_proj_dim 64 is not supported; supported is hidden_size 128"));
  EXPECT_THAT(FailureOf("OPTForCausalLM", R"({"_remove_final_layer_norm": true})"),
              HasSubstr("_remove_final_layer_norm"));
}

TEST(GptNeoTest, WindowsOfLocalLayers) {
  constexpr const char* kName = "GPTNeoForCausalLM";
  EXPECT_THAT(WindowsOf(ParsedOf(kName, "{}")), ElementsAre(0, 256, 0, 256));
  EXPECT_THAT(WindowsOf(ParsedOf(kName, R"({"window_size": 8,
                  "attention_types": [[["local", "global"], 1], [["local"], 2]]})")),
              ElementsAre(8, 0, 8, 8));
  EXPECT_THAT(FailureOf(kName, R"({"attention_types": [[["global"], 3]]})"),
              HasSubstr("attention_types must be a kind, global or local, for each of 4 layers"));
  EXPECT_THAT(FailureOf(kName, R"({"attention_layers": ["global", "local", "far", "local"]})"),
              HasSubstr("attention_layers"));
  EXPECT_THAT(FailureOf(kName, R"({"attention_types": [[["global"], 100000000]]})"),
              HasSubstr("attention_types"));
}

TEST(DbrxTest, FieldsOfItsParts) {
  constexpr const char* kName = "DbrxForCausalLM";
  const ModelConfig config = ParsedOf(kName, R"({"num_key_value_heads": null,
      "attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 500000},
      "ffn_config": {"moe_num_experts": 8, "moe_top_k": 4, "ffn_hidden_size": 96}})");
  EXPECT_EQ(config.rope.theta, 500000);
  EXPECT_EQ(config.num_key_value_heads, 2);
  EXPECT_EQ(config.spec.layers[0].attention.qkv_limit, 8);
  EXPECT_EQ(config.spec.layers[0].moe->top_k, 4);
  EXPECT_THAT(FailureOf(kName, R"({"attn_config": {"kv_n_heads": 3}})"),
              HasSubstr("attn_config.kv_n_heads must be a divisor of n_heads 4"));
  EXPECT_THAT(FailureOf(kName, R"({"ffn_config": {"moe_top_k": 5}})"),
              HasSubstr("ffn_config.moe_top_k must be at most moe_num_experts 4, found 5"));
  EXPECT_THAT(FailureOf(kName, R"({"ffn_config": {"moe_normalize_expert_weights": 2}})"),
              HasSubstr("moe_normalize_expert_weights 2 is not supported"));
  EXPECT_THAT(FailureOf(kName, R"({"ffn_config": {"ffn_act_fn": {"name": "gelu"}}})"),
              HasSubstr("ffn_act_fn.name 'gelu'"));
}

TEST(LatentExpertsTest, ReadAWidthOfTheirOwn) {
  const ModelConfig config = ParsedOf("NemotronHForCausalLM", R"({"moe_latent_size": 16,
      "layers_block_type": ["mamba", "moe", "attention", "moe"], "mamba_num_heads": 8})");
  EXPECT_EQ(config.spec.layers[1].moe->outer_width(128), 16);
  const ModelConfig biased = ParsedOf("NemotronHForCausalLM", R"({"moe_latent_size": 16,
      "layers_block_type": ["mamba", "moe", "attention", "moe"], "mamba_num_heads": 8,
      "attention_bias": true, "mlp_bias": true})");
  EXPECT_FALSE(biased.spec.layers[2].attention.qkv_bias);
  EXPECT_TRUE(biased.spec.layers[1].moe->latent->has_bias);
  EXPECT_THAT(FailureOf("NemotronHForCausalLM", R"({"moe_latent_size": 0, "mamba_num_heads": 8,
      "layers_block_type": ["mamba", "moe", "attention", "moe"]})"),
              HasSubstr("moe_latent_size"));
}

// The error names a tensor that is missing or has another shape.
TEST(FurtherTensorsTest, WhatIsMissingIsNamed) {
  const auto without = [](const char* checkpoint, const char* tensor) {
    CheckpointCopy copy(checkpoint);
    copy.Remove(tensor);
    return copy.Failure();
  };
  EXPECT_THAT(without("tiny-gpt2", "model.embed_positions.weight"),
              HasSubstr("tensor 'model.embed_positions.weight' of shape [256, 32] is missing"));
  EXPECT_THAT(without("tiny-gpt2", "model.layers.0.attn.c_attn.weight"),
              HasSubstr("tensor 'model.layers.0.attn.c_attn.weight' of shape [32, 96] is missing"));
  EXPECT_THAT(without("tiny-beam", "model.layers.1.self_attn.gate_bias"),
              HasSubstr("tensor 'model.layers.1.self_attn.gate_bias' of shape [4] is missing"));
  EXPECT_THAT(without("tiny-bitnet", "model.layers.0.mlp.ffn_sub_norm.weight"),
              HasSubstr("'model.layers.0.mlp.ffn_sub_norm.weight' of shape [48] is missing"));
  EXPECT_THAT(without("tiny-nemotron-h-latent", "model.layers.1.mixer.fc1_latent_proj.weight"),
              HasSubstr("mixer.fc1_latent_proj.weight"));
  EXPECT_THAT(without("tiny-axk1", "model.layers.1.post_mlp_layernorm.weight"),
              HasSubstr("'model.layers.1.post_mlp_layernorm.weight' of shape [32] is missing"));
  // The only optional tensor: published files lack it.
  EXPECT_EQ(without("tiny-axk1", "model.layers.1.mlp.gate.e_score_correction_bias"), "loaded");
}

// GPT-2's matrices are stored transposed and cannot be quantized while loading.
TEST(FurtherTensorsTest, TurnedMatricesAreNotRounded) {
  const std::filesystem::path folder = DataFolder("tiny-gpt2");
  const auto config = LoadModelConfig(folder, {}, {.weights = "fp8", .head = ""});
  ASSERT_TRUE(config) << config.error().message;
  ThreadPool pool(1);
  const auto model =
      LoadModel(pool, folder, *config, SmallOptions(ElementType::kBF16, ElementType::kBF16));
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message, HasSubstr("contains a matrix whose rows are inputs"));
}

TEST(FurtherTensorsTest, OtherShapesAreNamed) {
  CheckpointCopy turned("tiny-gpt2");
  turned.tensor("model.layers.0.mlp.c_fc.weight").shape = {128, 32};
  EXPECT_THAT(turned.Failure(),
              HasSubstr("tensor 'model.layers.0.mlp.c_fc.weight' has shape [128, 32], expected "
                        "[32, 128] from config.json"));
  CheckpointCopy flat("tiny-dbrx");
  flat.tensor("model.layers.0.ffn.experts.mlp.w2").shape = {32, 96};
  EXPECT_THAT(flat.Failure(), HasSubstr("'model.layers.0.ffn.experts.mlp.w2' has shape [32, 96], "
                                        "expected [96, 32] from config.json"));
  CheckpointCopy heads("tiny-cohere-heads");
  heads.tensor("model.layers.0.self_attn.q_norm.weight").shape = {32};
  EXPECT_THAT(heads.Failure(), HasSubstr("expected [4, 8] from config.json"));
}

}  // namespace
}  // namespace sluice
