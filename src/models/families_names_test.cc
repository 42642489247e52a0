// Names of families and of their fields.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/family_config_testing.h"
#include "models/registry.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using testing::LayerFailure;
using testing::ParseLayers;

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

}  // namespace
}  // namespace sluice
