// Step 3 and MUSE Glimmer, whose layers differ in heads, ropes and limits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/family_config_testing.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Json;
using testing::LayersWithRope;
using testing::Windows;
using testing::With;

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

}  // namespace
}  // namespace sluice
