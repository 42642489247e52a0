// Layers with and without RoPE, parts of heads that it rotates, and its tables.
#include <cmath>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/family_config_testing.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::LayerFailure;
using testing::LayersWithExperts;
using testing::LayersWithRope;
using testing::ParseLayers;
using testing::Windows;

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

}  // namespace
}  // namespace sluice
