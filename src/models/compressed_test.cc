// Tests compressed attention and residual streams (DeepSeek V4): configurations, cache sizes and
// errors. Results must not depend on the block size.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json_testing.h"
#include "models/checkpoint_copy_testing.h"
#include "models/drafter.h"
#include "models/kv_layout.h"
#include "models/model_testing.h"
#include "models/rope_frequencies.h"
#include "models/shard.h"
#include "models/state_cache.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using testing::CheckpointCopy;
using testing::DataFolder;
using ::testing::HasSubstr;
using testing::Json;
using testing::LogitRows;
using testing::Runner;
using testing::SmallOptions;

constexpr const char* kTiny = "tiny-deepseek-v4";

Result<ModelConfig> Parse(const std::string& changes) {
  json::Value config = Json(changes);
  config.Set("architectures", json::Value::Array{std::string("DeepseekV4ForCausalLM")});
  config.Set("dtype", "bfloat16");
  return ParseModelConfig(config);
}
ModelConfig Config(const std::string& changes) {
  auto config = Parse(changes);
  EXPECT_TRUE(config) << (config ? "" : config.error().message);
  return config ? *std::move(config) : ModelConfig{};
}
std::string Failure(const std::string& changes) {
  const auto config = Parse(changes);
  return config ? "read" : config.error().message;
}

// Reads the fields of published files, which use older names and lists of ratios.
TEST(CompressedConfigTest, PublishedFields) {
  const ModelConfig config =
      Config(R"({"num_hidden_layers": 4, "compress_ratios": [0, 128, 4, 128, 0],
      "num_hash_layers": 2, "qk_rope_head_dim": 64, "head_dim": 512, "rope_theta": 10000,
      "compress_rope_theta": 160000, "rope_scaling": {"type": "yarn", "factor": 16,
      "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 65536}})");
  ASSERT_EQ(config.spec.layers.size(), 4u);
  const auto latent = [&](size_t layer) { return *config.spec.layers[layer].attention.latent; };
  EXPECT_EQ(latent(0).compressed->rate, 0);
  EXPECT_EQ(config.spec.layers[0].attention.span.window, 128);
  EXPECT_EQ(latent(1).compressed->rate, 128);
  EXPECT_FALSE(latent(1).compressed->overlaps);
  EXPECT_FALSE(latent(1).indexer);
  EXPECT_EQ(config.spec.layers[1].attention.span.window, 0);
  EXPECT_EQ(latent(2).compressed->rate, 4);
  EXPECT_TRUE(latent(2).compressed->overlaps);
  EXPECT_EQ(latent(2).indexer->top_k, 512);
  EXPECT_EQ(latent(2).rope_dim, 64);
  EXPECT_EQ(config.max_position_embeddings, 1048576);
  EXPECT_EQ(config.spec.rope_amplitude, 1);
  EXPECT_EQ(config.spec.layers[0].attention.rope_table, 0);
  EXPECT_EQ(config.spec.layers[2].attention.rope_table, 1);
  RopeConfig plain{.theta = 160000};
  EXPECT_NE(config.spec.rope_tables[1], RopeTableOf(plain, 64)) << "YaRN applies to entries";
  plain.theta = 10000;
  EXPECT_EQ(config.spec.rope_tables[0], RopeTableOf(plain, 64)) << "and not to other layers";
  EXPECT_EQ(config.spec.layers[1].moe->token_experts, "ffn.gate.tid2eid");
  EXPECT_EQ(config.spec.layers[2].moe->token_experts, "");
  EXPECT_EQ(config.spec.layers[2].moe->choice_bias, "ffn.gate.bias");
  EXPECT_EQ(config.spec.streams->count, 4);
}

TEST(CompressedConfigTest, WrongFieldsAreNamed) {
  const std::string layers = R"("num_hidden_layers": 2)";
  for (const auto& [field, name] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"("layer_types": ["sliding_attention", "full_attention"])", "layer_types"},
           {R"("layer_types": ["sliding_attention"])", "layer_types"},
           {R"("compress_ratios": [4, 8])", "compress_ratios"},
           {R"("compress_ratios": [4])", "compress_ratios"},
           {R"("mlp_layer_types": ["moe", "dense"])", "mlp_layer_types"},
           {R"("layer_types": ["compressed_sparse_attention", "heavily_compressed_attention"],
               "compress_rates": {"heavily_compressed_attention": 2})",
            "compress_rates"},
           {R"("num_key_value_heads": 2)", "num_key_value_heads"},
           {R"("o_groups": 7)", "o_groups"},
           {R"("index_head_dim": 32)", "index_head_dim"},
           {R"("hc_mult": 9)", "hc_mult"},
           {R"("scoring_func": "softmax")", "scoring_func"},
           {R"("n_shared_experts": 2)", "n_shared_experts"},
           {R"("norm_topk_prob": false)", "norm_topk_prob"},
           {R"("attention_bias": true)", "attention_bias"},
           {R"("partial_rotary_factor": 1.0)", "partial_rotary_factor"},
           {R"("rope_parameters": {"rope_type": "yarn", "factor": 2, "attention_factor": 1.2})",
            "attention_factor"}}) {
    EXPECT_THAT(Failure(fmt::format("{{{}, {}}}", layers, field)), HasSubstr(name)) << field;
  }
}

// A block of 16 tokens has 16 + 4 rows of 512 numbers, and 4 indexer keys of 128 numbers.
TEST(CompressedCacheTest, BlocksHaveRoomForEntries) {
  const ModelConfig config = Config("{}");
  ModelOptions options;
  options.block_size = 16;
  options.kv_type = ElementType::kBF16;
  const kernels::KvLayout layout = KvLayoutOf(config.spec, options);
  EXPECT_EQ(layout.BlockElements(), 20 * 512);
  EXPECT_EQ(layout.ValueBlockElements(), 4 * 128);
  EXPECT_EQ(layout.Rows().BlockElements(), layout.BlockElements());
  EXPECT_EQ(layout.Entries().block_size, 4);
  // 20 layers have an indexer, with two softmaxes for entries and two for keys each; 23 layers have
  // none.
  int64_t numbers = 0;
  for (const LayerSpec& layer : config.spec.layers)
    numbers += layer.attention.latent->StateNumbers();
  EXPECT_EQ(numbers, 20 * 6 * (512 + 128) + 23 * 3 * 512);
  EXPECT_EQ(StateLayout::For(config.spec).slot_bytes(), numbers * 4);
}

TEST(CompressedCacheTest, BlockSizesDoNotMatter) {
  std::vector<int32_t> tokens(110);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i % 127);
  ModelOptions options = SmallOptions(ElementType::kF32, ElementType::kF32);
  const LogitRows expected = Runner(DataFolder(kTiny), options, 1).RunAlone(tokens, 64);
  for (const int block_size : {4, 8, 32, 64}) {
    options.block_size = block_size;
    EXPECT_TRUE(Runner(DataFolder(kTiny), options, 2).RunAlone(tokens, 7) == expected)
        << block_size;
  }
  const auto config = LoadModelConfig(DataFolder(kTiny));
  ASSERT_TRUE(config);
  for (const auto& [block_size, tokens_per_entry] : {std::pair(12, 32), std::pair(2, 4)}) {
    options.block_size = block_size;
    const auto plan = PlanModel(*config, options, 1);
    ASSERT_FALSE(plan);
    EXPECT_THAT(plan.error().message, AllOf(HasSubstr(fmt::format("--block-size {}:", block_size)),
                                            HasSubstr(fmt::format("{} tokens", tokens_per_entry))));
  }
}

TEST(CompressedLoadingTest, WrongTensorsAreNamed) {
  for (const char* name :
       {"attn.wq_b.weight", "attn.wo_a.weight", "attn.attn_sink", "attn.compressor.ape",
        "attn.compressor.wgate.weight", "attn.indexer.compressor.norm.weight",
        "attn.indexer.weights_proj.weight", "hc_attn_fn", "hc_ffn_scale", "ffn.gate.bias"}) {
    CheckpointCopy copy(kTiny);
    const std::string tensor = fmt::format("model.layers.2.{}", name);
    copy.Remove(tensor);
    EXPECT_THAT(copy.Failure(), AllOf(HasSubstr(tensor), HasSubstr("missing")));
  }
  constexpr const char* kTable = "model.layers.0.ffn.gate.tid2eid";
  CheckpointCopy copy(kTiny);
  copy.tensor(kTable).data[8] = '\x06';  // expert index 6; the model has six experts
  EXPECT_THAT(copy.Failure(),
              AllOf(HasSubstr(kTable), HasSubstr("index 6 at element 1"), HasSubstr("0 to 5")));
  copy.tensor(kTable).dtype = "F64";
  EXPECT_THAT(copy.Failure(), AllOf(HasSubstr(kTable), HasSubstr("expected I64 or I32")));
}

TEST(CompressedTest, RanksAndDraftersAreRefused) {
  const auto config = LoadModelConfig(DataFolder(kTiny));
  ASSERT_TRUE(config);
  EXPECT_TRUE(CheckRanks(config->spec, 1, 1));
  for (const auto& [tensor, stages] : {std::pair(2, 1), std::pair(1, 2)}) {
    const Status status = CheckRanks(config->spec, tensor, stages);
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr("several residual streams"));
  }
  const auto drafter = LoadMtpConfig(*config, DataFolder(kTiny), /*has_weights=*/true);
  ASSERT_FALSE(drafter);
  EXPECT_THAT(drafter.error().message, HasSubstr("DeepseekV4ForCausalLM"));
}

}  // namespace
}  // namespace sluice
