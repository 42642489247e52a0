// Layers with experts as config.json describes them.
#include <cmath>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/family_config_testing.h"
#include "models/weights.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using testing::Experts;
using ::testing::HasSubstr;
using testing::LayerFailure;
using testing::LayersWithExperts;
using testing::ParseLayers;
using testing::Windows;

constexpr const char* kQwen3Moe = "Qwen3MoeForCausalLM";

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

}  // namespace
}  // namespace sluice
