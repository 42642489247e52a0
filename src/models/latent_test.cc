// Latent attention: configurations, cache sizes, stored tensors, and errors.
#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json_testing.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_testing.h"
#include "models/checkpoint_copy_testing.h"
#include "models/inspect.h"
#include "models/inspect_program.h"
#include "models/model_testing.h"
#include "models/parallel_model.h"
#include "models/shard.h"
#include "models/weight_loader.h"
#include "tensor/bfloat16.h"
#include "tensor/float8.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using testing::CheckpointCopy;
using testing::DataFolder;
using ::testing::HasSubstr;
using testing::Json;
using testing::LoadedWeightBytes;
using testing::Runner;
using testing::SmallOptions;

constexpr const char* kLatentCheckpoints[] = {
    "tiny-deepseek-v3", "tiny-deepseek-v2",  "tiny-glm4-lite", "tiny-mistral4",
    "tiny-minicpm3",    "tiny-deepseek-v32", "tiny-glm-dsa"};

// Returns the configuration of an architecture with all defaults except `changes`.
Result<ModelConfig> ParseLatent(const char* architecture, const char* changes = "{}") {
  json::Value config = Json(changes);
  config.Set("architectures", json::Value::Array{std::string(architecture)});
  config.Set("dtype", "bfloat16");
  return ParseModelConfig(config);
}
ModelConfig Latent(const char* architecture, const char* changes = "{}") {
  auto config = ParseLatent(architecture, changes);
  EXPECT_TRUE(config) << (config ? "" : config.error().message);
  return config ? *std::move(config) : ModelConfig{};
}
std::string LatentFailure(const char* architecture, const char* changes) {
  const auto config = ParseLatent(architecture, changes);
  return config ? "read" : config.error().message;
}

TEST(LatentConfigTest, ScoresAreScaledByBothPartsAndYarn) {
  const auto scale = [](const char* changes) {
    return Latent("DeepseekV3ForCausalLM", changes).spec.layers[0].attention.softmax_scale();
  };
  const double plain = 1 / std::sqrt(192.0);
  EXPECT_FLOAT_EQ(scale("{}"), static_cast<float>(plain));
  EXPECT_FLOAT_EQ(scale(R"({"rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0,
                            "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}})"),
                  static_cast<float>(plain * std::pow(0.1 * std::log(40.0) + 1, 2)));
  // Without mscale_all_dim, only the rotated part of a score is scaled.
  const ModelConfig rotated =
      Latent("DeepseekV3ForCausalLM", R"({"rope_scaling": {"type": "yarn", "factor": 40,
             "original_max_position_embeddings": 4096}})");
  EXPECT_FLOAT_EQ(rotated.spec.layers[0].attention.softmax_scale(), static_cast<float>(plain));
  EXPECT_FLOAT_EQ(rotated.spec.rope_amplitude, static_cast<float>(0.1 * std::log(40.0) + 1));
}

TEST(LatentConfigTest, KimiK2IsADeepseekV3) {
  const ModelConfig config =
      Latent("DeepseekV3ForCausalLM",
             R"({"model_type": "kimi_k2", "num_attention_heads": 64, "num_key_value_heads": 64,
          "n_routed_experts": 384, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
          "topk_method": "noaux_tc", "scoring_func": "sigmoid", "num_nextn_predict_layers": 0})");
  EXPECT_EQ(config.spec.layers[0].attention.num_heads, 64);
  EXPECT_EQ(config.spec.num_draft_layers, 0);
  EXPECT_FALSE(config.spec.layers[0].moe);
  ASSERT_TRUE(config.spec.layers[1].moe);
  EXPECT_EQ(config.spec.layers[1].moe->num_groups, 1);
}

TEST(LatentConfigTest, WhatDoesNotFitIsRefusedByName) {
  const auto fails = [](const char* changes, const char* expected) {
    EXPECT_THAT(LatentFailure("DeepseekV3ForCausalLM", changes), HasSubstr(expected)) << changes;
  };
  fails(R"({"kv_lora_rank": 514})", "kv_lora_rank 514 is not supported");
  fails(R"({"kv_lora_rank": 33})", "kv_lora_rank 33 is not supported");
  fails(R"({"qk_rope_head_dim": 66})", "qk_rope_head_dim 66 is not supported");
  fails(R"({"qk_rope_head_dim": 3})", "qk_rope_head_dim 3 is not supported");
  fails(R"({"qk_head_dim": 191})", "qk_head_dim must be the sum of qk_nope_head_dim 128");
  fails(R"({"num_key_value_heads": 64})", "num_key_value_heads must be num_attention_heads 128");
  fails(R"({"q_lora_rank": null, "attention_bias": true})", "attention_bias with a q_lora_rank");
  fails(R"({"topk_method": "greedy"})", "topk_method 'greedy' is not supported");
  fails(R"({"scoring_func": "softmax"})", "scoring_func 'softmax' is not supported");
  fails(R"({"moe_layer_freq": 2})", "moe_layer_freq 2 is not supported");
  fails(R"({"n_group": 7})", "n_group must be");
  fails(R"({"v_head_dim": 0})", "v_head_dim must be");
  fails(R"({"num_hidden_layers": 2, "mlp_layer_types": ["dense", "other"]})",
        "mlp_layer_types must be");
  fails(R"({"num_hidden_layers": 2, "mlp_layer_types": ["dense"]})", "mlp_layer_types must be");
}

TEST(LatentConfigTest, Glm5SharesIndexers) {
  const auto shared = [](const char* changes) {
    std::string letters;
    for (const LayerSpec& layer : Latent("GlmMoeDsaForCausalLM", changes).spec.layers)
      letters += layer.attention.latent->indexer->is_shared ? 'S' : 'F';
    return letters;
  };
  EXPECT_EQ(shared(R"({"num_hidden_layers": 5})"), "FFFFF");
  EXPECT_EQ(shared(R"({"num_hidden_layers": 6, "index_topk_freq": 2})"), "FFSFSF");
  EXPECT_EQ(shared(R"({"num_hidden_layers": 6, "index_topk_freq": 4,
                       "index_skip_topk_offset": 1})"),
            "FSSSFS");
  EXPECT_EQ(shared(R"({"num_hidden_layers": 5, "index_topk_pattern": "FSFSS"})"), "FSFSS");
  const auto fails = [](const char* changes, const char* expected) {
    EXPECT_THAT(LatentFailure("GlmMoeDsaForCausalLM", changes), HasSubstr(expected)) << changes;
  };
  fails(R"({"num_hidden_layers": 5, "index_topk_pattern": "SFFFF"})", "index_topk_pattern must be");
  fails(R"({"num_hidden_layers": 5, "index_topk_pattern": "FXFFF"})", "index_topk_pattern must be");
  fails(R"({"num_hidden_layers": 5, "indexer_types": ["full"]})", "indexer_types must be");
  fails(R"({"index_head_dim": 32})", "index_head_dim must be");
  fails(R"({"index_topk": 0})", "index_topk must be");
  fails(R"({"q_lora_rank": null})", "q_lora_rank null is not supported");
  fails(R"({"first_k_dense_replace": 78})", "an indexer in a model without experts");
  fails(R"({"num_hidden_layers": 4, "layer_types": ["full_attention"]})",
        "layer_types 'full_attention' is not supported");
  // A layer cannot reuse positions that a layer of another stage chose.
  const ModelConfig config =
      Latent("GlmMoeDsaForCausalLM", R"({"num_hidden_layers": 4, "index_topk_pattern": "FFSF"})");
  const auto two = CheckRanks(config.spec, 1, 2);
  ASSERT_FALSE(two);
  EXPECT_THAT(two.error().message,
              HasSubstr("layer 2 attends to positions chosen by the previous layer"));
  EXPECT_TRUE(CheckRanks(config.spec, 2, 1));
}

// One latent vector and one shared key per token and layer, in both the plan and the program.
TEST(LatentPlanTest, ATokenOfDeepseekV3Takes576NumbersALayer) {
  const ModelConfig config = Latent("DeepseekV3ForCausalLM");
  ModelOptions options;
  const auto memory = PlanModel(config, options, 2);
  ASSERT_TRUE(memory) << memory.error().message;
  constexpr int64_t kNumbers = 576;
  EXPECT_EQ(memory->kv_bytes_per_block, 61 * kNumbers * 2 * options.block_size);
  EXPECT_EQ(memory->kv_bytes_per_group_block, memory->kv_bytes_per_block);
  EXPECT_LT(memory->workspace_bytes, int64_t{8} << 30);
  // Every rank stores the same vectors.
  const auto share = PlanShare(config, options, 2, RankPlace::Of(1, 4, 1));
  ASSERT_TRUE(share);
  EXPECT_EQ(share->kv_bytes_per_block, memory->kv_bytes_per_block);
  const auto text = ProgramText(config, options, {});
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, HasSubstr(fmt::format("{:>14}", 61 * kNumbers * 2)));
}

// The indexer's keys are stored in addition.
TEST(LatentPlanTest, ATokenOfDeepseekV32Takes704NumbersALayer) {
  const ModelConfig config = Latent("DeepseekV32ForCausalLM");
  ModelOptions options;
  const auto memory = PlanModel(config, options, 2);
  ASSERT_TRUE(memory) << memory.error().message;
  EXPECT_EQ(memory->kv_bytes_per_block, 61 * 704 * 2 * options.block_size);
  const auto text = ProgramText(config, options, {});
  ASSERT_TRUE(text);
  EXPECT_THAT(*text,
              AllOf(HasSubstr(fmt::format("{:>14}", 61 * 704 * 2)), HasSubstr("ChoosePositions")));
}

TEST(LatentPlanTest, CountsEveryByteOfTheWeights) {
  for (const char* name : kLatentCheckpoints) {
    const auto config = LoadModelConfig(DataFolder(name));
    const auto memory = PlanModel(*config, SmallOptions(ElementType::kBF16, ElementType::kBF16), 2);
    ASSERT_TRUE(memory);
    EXPECT_EQ(memory->weight_bytes, LoadedWeightBytes(name, *config)) << name;
  }
}

TEST(LatentLoadingTest, MissingTensorsWrongShapesAndNaNsAreNamed) {
  const std::string prefix = "model.layers.1.self_attn.";
  for (const char* module : {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"}) {
    CheckpointCopy copy("tiny-deepseek-v3");
    copy.Remove(prefix + module + ".weight");
    EXPECT_THAT(copy.Failure(),
                AllOf(HasSubstr(prefix + module + ".weight"), HasSubstr("missing")));
  }
  for (const char* norm : {"q_a_layernorm", "kv_a_layernorm"}) {
    CheckpointCopy copy("tiny-deepseek-v3");
    copy.Remove(prefix + norm + ".weight");
    EXPECT_THAT(copy.Failure(), AllOf(HasSubstr(prefix + norm), HasSubstr("missing")));
  }
  for (const char* module : {"wq_b", "wk", "weights_proj", "k_norm"}) {
    CheckpointCopy copy("tiny-deepseek-v32");
    const std::string name = fmt::format("{}indexer.{}.weight", prefix, module);
    copy.Remove(name);
    EXPECT_THAT(copy.Failure(), AllOf(HasSubstr(name), HasSubstr("missing")));
  }
  CheckpointCopy narrow("tiny-deepseek-v3");
  narrow.tensor(prefix + "kv_b_proj.weight").shape = {40, 36};
  EXPECT_THAT(narrow.Failure(), AllOf(HasSubstr(prefix + "kv_b_proj.weight"),
                                      HasSubstr("[40, 36], expected [80, 18]")));
  CheckpointCopy broken("tiny-deepseek-v3");
  // A BF16 NaN in row 9, which belongs to the values of the first head.
  broken.tensor(prefix + "kv_b_proj.weight").data.replace((9 * 18 + 4) * 2, 2, "\xC0\x7F");
  EXPECT_THAT(broken.Failure(),
              AllOf(HasSubstr(prefix + "kv_b_proj.weight"), HasSubstr("row 9, column 4")));
}

// The format of published DeepSeek checkpoints; heads begin in the middle of a block.
TEST(LatentLoadingTest, BlocksOfFp8GiveTheLogitsOfTheirValues) {
  CheckpointCopy blocks("tiny-deepseek-v3"), plain("tiny-deepseek-v3");
  constexpr float kScale = 0x1p-6F;
  std::vector<testing::TestTensor> scales;
  for (testing::TestTensor& tensor : blocks.tensors()) {
    const bool is_linear =
        tensor.name.ends_with("_proj.weight") || tensor.name.ends_with("_mqa.weight");
    if (!is_linear) continue;
    std::string& values = plain.tensor(tensor.name).data;
    std::string codes;
    for (size_t i = 0; i < values.size(); i += 2) {
      BFloat16 value;
      std::memcpy(&value, values.data() + i, 2);
      const Float8E4M3 code = ToFloat8E4M3(ToFloat(value) / kScale);
      value = ToBFloat16(ToFloat(code) * kScale);
      std::memcpy(values.data() + i, &value, 2);
      codes.push_back(static_cast<char>(code.bits));
    }
    tensor.dtype = "F8_E4M3";
    tensor.data = codes;
    scales.push_back({tensor.name + "_scale_inv",
                      "F32",
                      {1, 1},
                      std::string(reinterpret_cast<const char*>(&kScale), 4)});
  }
  ASSERT_FALSE(scales.empty());
  blocks.tensors().insert(blocks.tensors().end(), scales.begin(), scales.end());
  blocks.config().Set("quantization_config",
                      Json(R"({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                               "weight_block_size": [128, 128]})"));
  std::vector<int32_t> tokens;
  for (int i = 0; i < 40; ++i) tokens.push_back(i * 37 % 128);
  const ModelOptions options = SmallOptions(ElementType::kF32, ElementType::kF32);
  const auto expected = Runner(plain.Write(), options, 2).RunAlone(tokens, 64);
  const auto got = Runner(blocks.Write(), options, 2).RunAlone(tokens, 64);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t row = 0; row < got.size(); ++row) {
    for (size_t i = 0; i < got[row].size(); ++i)
      ASSERT_NEAR(got[row][i], expected[row][i], 1e-3) << row << " " << i;
  }
}

// Kimi K2.5: the text part of a model for text and images.
TEST(LatentLoadingTest, TheTextPartOfKimiK25IsADeepseekV3) {
  CheckpointCopy nested("tiny-deepseek-v3");
  for (testing::TestTensor& tensor : nested.tensors())
    tensor.name = "language_model." + tensor.name;
  nested.tensors().push_back({"mm_projector.proj.0.weight", "BF16", {1, 1}, "12"});
  nested.tensors().push_back({"vision_tower.patch_embed.proj.bias", "BF16", {1}, "12"});
  json::Value text = nested.config();
  text.Set("model_type", "kimi_k2");
  nested.config() = Json(R"({"architectures": ["KimiK25ForConditionalGeneration"],
                             "model_type": "kimi_k25", "vision_config": {}})");
  nested.config().Set("text_config", std::move(text));
  std::vector<int32_t> tokens = {5, 17, 100, 42, 9, 9, 127, 0};
  const ModelOptions options = SmallOptions(ElementType::kF32, ElementType::kF32);
  const auto expected = Runner(DataFolder("tiny-deepseek-v3"), options, 1).RunAlone(tokens, 64);
  EXPECT_TRUE(Runner(nested.Write(), options, 1).RunAlone(tokens, 64) == expected);
}

TEST(LatentInspectTest, TellsOfHeadsAndOfNothingMissing) {
  const auto report = InspectModel(DataFolder("tiny-deepseek-v3"));
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_FALSE(report->refusal) << *report->refusal;
  EXPECT_EQ(report->kv_bytes_per_token, 2 * 26 * 2);
  EXPECT_THAT(FormatText(*report), HasSubstr("a latent vector of 18 and a key of 8 for all"));
}

}  // namespace
}  // namespace sluice
