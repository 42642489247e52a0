#include "checkpoint/mistral_format.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json_testing.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::Json;

// The configuration of Mistral Large 3, except for its image tower.
const char* const kLarge3 = R"({
  "dim": 7168, "head_dim": 192, "hidden_dim": 16384, "kv_lora_rank": 512,
  "llama_4_scaling": {"beta": 0.1, "original_max_position_embeddings": 8192},
  "max_position_embeddings": 294912,
  "moe": {"expert_hidden_dim": 4096, "expert_model_parallel": 1, "expert_parallel": 1,
          "first_k_dense_replace": 3, "num_expert_groups": 1, "num_expert_groups_per_tok": 1,
          "num_experts": 128, "num_experts_per_tok": 4, "num_shared_experts": 1,
          "route_every_n": 1, "routed_scale": 1.0},
  "n_heads": 128, "n_kv_heads": 128, "n_layers": 61, "norm_eps": 1e-06, "q_lora_rank": 1536,
  "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rope_theta": 10000.0,
  "tied_embeddings": false, "v_head_dim": 128, "vocab_size": 131072,
  "yarn": {"alpha": 1, "apply_scale": false, "beta": 32, "factor": 36,
           "original_max_position_embeddings": 8192},
  "quantization_config": {"quant_method": "compressed-tensors", "format": "float-quantized"}})";

const char* const kDense = R"({"dim": 64, "n_layers": 4, "head_dim": 16, "hidden_dim": 96,
  "n_heads": 4, "n_kv_heads": 2, "norm_eps": 1e-05, "vocab_size": 128, "rope_theta": 1e6})";

json::Value Config(const json::Value& params) {
  const auto config = ConfigOfMistralParams(params);
  EXPECT_TRUE(config) << (config ? "" : config.error().message);
  return config ? *config : json::Value();
}

json::Value With(const char* params, const char* key, const char* value) {
  json::Value changed = Json(params);
  changed.Set(key, Json(value));
  return changed;
}

std::string Problem(const json::Value& params) {
  const auto config = ConfigOfMistralParams(params);
  return config ? "" : config.error().message;
}

TEST(MistralFormatTest, Large3) {
  const json::Value config = Config(Json(kLarge3));
  EXPECT_EQ(*config.Find("architectures"), Json(R"(["Mistral4ForCausalLM"])"));
  EXPECT_EQ(config.Find("n_routed_experts")->as_integer(), 128);
  EXPECT_EQ(config.Find("moe_intermediate_size")->as_integer(), 4096);
  EXPECT_EQ(config.Find("first_k_dense_replace")->as_integer(), 3);
  EXPECT_EQ(config.Find("max_position_embeddings")->as_integer(), 294912);
  EXPECT_EQ(*config.Find("rope_parameters"),
            Json(R"({"rope_theta": 10000.0, "rope_type": "yarn", "factor": 36, "beta_fast": 32,
                     "beta_slow": 1, "attention_factor": 1.0, "llama_4_scaling_beta": 0.1,
                     "original_max_position_embeddings": 8192})"));
  EXPECT_EQ(config.Find("quantization_config")->Find("quant_method")->as_string(),
            "compressed-tensors");
}

TEST(MistralFormatTest, DenseAndMixtral) {
  json::Value config = Config(Json(kDense));
  EXPECT_EQ(*config.Find("architectures"), Json(R"(["MistralForCausalLM"])"));
  EXPECT_EQ(config.Find("max_position_embeddings")->as_integer(), 128000);
  EXPECT_TRUE(config.Find("sliding_window")->is_null());
  config = Config(With(kDense, "sliding_window", "[null, 8, 8, 8]"));
  EXPECT_EQ(config.Find("sliding_window")->as_integer(), 8);
  EXPECT_EQ(*config.Find("layer_types"),
            Json(R"(["full_attention", "sliding_attention", "sliding_attention",
                     "sliding_attention"])"));
  config = Config(With(kDense, "moe", R"({"num_experts": 8, "num_experts_per_tok": 2})"));
  EXPECT_EQ(*config.Find("architectures"), Json(R"(["MixtralForCausalLM"])"));
  EXPECT_EQ(config.Find("num_local_experts")->as_integer(), 8);
  config = Config(With(kDense, "quantization",
                       R"({"qformat_weight": "fp8_e4m3", "qscheme_act": "NO_SCALES"})"));
  EXPECT_EQ(*config.Find("quantization_config"),
            Json(R"({"quant_method": "fp8", "activation_scheme": "dynamic",
                     "modules_to_not_convert": ["lm_head"]})"));
}

TEST(MistralFormatTest, NamesWhatIsMissingOrSomethingElse) {
  EXPECT_THAT(Problem(Json("{}")), HasSubstr("dim"));
  EXPECT_THAT(Problem(With(kDense, "n_layers", "\"4\"")), HasSubstr("n_layers"));
  EXPECT_THAT(Problem(With(kDense, "model_type", "\"mamba\"")), HasSubstr("found mamba"));
  EXPECT_THAT(Problem(With(kDense, "multimodal", R"({"whisper_model_args": {}})")),
              HasSubstr("multimodal.whisper_model_args"));
  EXPECT_THAT(Problem(With(kDense, "ada_rms_norm_t_cond", "true")),
              HasSubstr("ada_rms_norm_t_cond"));
  EXPECT_THAT(Problem(With(kDense, "sliding_window", "[8, 9]")), HasSubstr("sliding_window"));
  EXPECT_THAT(Problem(With(kDense, "sliding_window", "[8, null, null]")),
              HasSubstr("divides n_layers 4"));
  EXPECT_THAT(Problem(With(kDense, "yarn", R"({"factor": 4})")),
              HasSubstr("yarn.original_max_position_embeddings"));
  EXPECT_THAT(Problem(With(kLarge3, "llama_4_scaling",
                           R"({"beta": 0.1, "original_max_position_embeddings": 4})")),
              HasSubstr("llama_4_scaling.original_max_position_embeddings"));
  EXPECT_THAT(Problem(With(kDense, "quantization", R"({"qformat_weight": "int4"})")),
              HasSubstr("found 'int4'"));
  EXPECT_THAT(Problem(With(kDense, "moe", R"({"num_experts": 8, "num_experts_per_tok": 2,
                                              "num_shared_experts": 1})")),
              HasSubstr("moe.num_shared_experts"));
  EXPECT_THAT(Problem(With(kLarge3, "moe", R"({"num_experts": 8})")),
              HasSubstr("moe.num_experts_per_tok"));
}

TEST(MistralFormatTest, TensorNames) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"tok_embeddings.weight", "model.embed_tokens.weight"},
      {"norm.weight", "model.norm.weight"},
      {"output.weight", "lm_head.weight"},
      {"layers.11.attention.wq.weight", "model.layers.11.self_attn.q_proj.weight"},
      {"layers.1.attention.wq_a.qscale_act", "model.layers.1.self_attn.q_a_proj.input_scale"},
      {"layers.1.attention.wkv_b.qscale_weight", "model.layers.1.self_attn.kv_b_proj.weight_scale"},
      {"layers.1.attention.k_fake_quantizer.qscale_act", "model.layers.1.self_attn.k_scale"},
      {"layers.1.attention_norm.weight", "model.layers.1.input_layernorm.weight"},
      {"layers.1.feed_forward.w2.weight", "model.layers.1.mlp.down_proj.weight"},
      {"layers.1.feed_forward.experts.3.w1.weight",
       "model.layers.1.block_sparse_moe.experts.3.w1.weight"},
      {"layers.1.experts.3.w3.weight_scale", "model.layers.1.mlp.experts.3.up_proj.weight_scale"},
      {"layers.1.shared_experts.w1.weight", "model.layers.1.mlp.shared_experts.gate_proj.weight"},
      {"layers.1.gate.weight", "model.layers.1.mlp.gate.weight"},
      {"layers.1.odd.weight", "layers.1.odd.weight"},
      {"layers.", "layers."},
      {"layers.1.experts.", "model.layers.1.mlp.experts."},
      {"vision_encoder.ln_pre.weight", "vision_encoder.ln_pre.weight"}};
  for (const auto& [own, canonical] : kNames) EXPECT_EQ(NameOfMistralTensor(own), canonical);
}

TEST(MistralFormatTest, OnlyWithoutTheOtherFormat) {
  const fs::path folder = fs::path(::testing::TempDir()) / "sluice_mistral_format";
  fs::remove_all(folder);
  fs::create_directories(folder);
  const auto add = [&](const char* name) { std::ofstream(folder / name) << kDense; };
  EXPECT_FALSE(IsMistralFormat(folder));
  add("params.json");
  EXPECT_TRUE(IsMistralFormat(folder));
  EXPECT_EQ(ReadModelConfig(folder)->Find("hidden_size")->as_integer(), 64);
  add("config.json");
  EXPECT_FALSE(IsMistralFormat(folder));
  add("consolidated-00001-of-00001.safetensors");
  EXPECT_TRUE(IsMistralFormat(folder));
  add("model.safetensors.index.json");
  EXPECT_FALSE(IsMistralFormat(folder));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace sluice
