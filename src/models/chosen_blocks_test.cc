// Attention to chosen blocks of positions (MiniMax M3): configurations, cache sizes, errors, that
// the choice has effect, and that the sizes of the cache's blocks do not matter.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json_testing.h"
#include "models/checkpoint_copy_testing.h"
#include "models/inspect.h"
#include "models/inspect_program.h"
#include "models/kv_layout.h"
#include "models/model_testing.h"
#include "models/shard.h"

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

constexpr const char* kTinyMiniMax = "tiny-minimax-m3";

Result<ModelConfig> ParseMiniMax(const std::string& text) {
  json::Value config = Json(R"({"model_type": "minimax_m3_vl", "dtype": "bfloat16",
      "architectures": ["MiniMaxM3SparseForConditionalGeneration"], "vision_config": {}})");
  config.Set("text_config", Json(text));
  return ParseModelConfig(config);
}

// The published form: lists of flags, and the indexer's sizes in an object, which take precedence.
TEST(ChosenBlocksConfigTest, PublishedFields) {
  const auto config = ParseMiniMax(R"({"num_hidden_layers": 3, "hidden_act": "swigluoai",
      "partial_rotary_factor": 0.5, "rotary_dim": 64, "rope_theta": 5000000,
      "moe_layer_freq": [0, 1, 1], "use_gemma_norm": true, "use_qk_norm": true,
      "qk_norm_type": "per_head", "scoring_func": "sigmoid", "use_routing_bias": true,
      "n_shared_experts": 1, "index_topk_blocks": 7, "num_mtp_modules": 0,
      "sparse_attention_config": {"use_sparse_attention": true, "sparse_index_dim": 64,
        "sparse_num_index_heads": 4, "sparse_topk_blocks": 8, "sparse_block_size": 256,
        "sparse_score_type": "max", "sparse_init_block": 0, "sparse_local_block": 2,
        "sparse_attention_freq": [0, 0, 1], "sparse_disable_index_value": [0, 0, 1]}})");
  ASSERT_TRUE(config) << config.error().message;
  const std::vector<LayerSpec>& layers = config->spec.layers;
  EXPECT_FALSE(layers[0].moe);
  EXPECT_EQ(layers[0].mlp.intermediate_size, 12288);
  EXPECT_EQ(layers[1].mlp.intermediate_size, 3072);
  EXPECT_EQ(layers[1].moe->num_experts, 128);
  EXPECT_EQ(layers[1].moe->weight_scale, 2);
  EXPECT_FALSE(layers[1].attention.block_indexer);
  const BlockIndexerSpec& indexer = *layers[2].attention.block_indexer;
  EXPECT_EQ(indexer.num_heads, 4);
  EXPECT_EQ(indexer.head_dim, 64);
  EXPECT_EQ(indexer.block, 256);
  EXPECT_EQ(indexer.top_k, 8);
  EXPECT_EQ(indexer.local, 2);
  EXPECT_EQ(layers[2].attention.rotated(), 64);
}

TEST(ChosenBlocksConfigTest, WrongFieldsAreNamed) {
  const std::string sparse = R"("layer_types": ["full_attention", "minimax_m3_sparse"])";
  const std::string nested = R"("sparse_attention_config": {"sparse_attention_freq": [0, 1], )";
  for (const auto& [field, name] : std::initializer_list<std::pair<std::string, const char*>>{
           {R"("layer_types": ["full_attention", "sliding_attention"])", "layer_types"},
           {R"("layer_types": ["full_attention"])", "layer_types"},
           {R"("mlp_layer_types": ["dense", "dense"])", "mlp_layer_types"},
           {R"("mlp_layer_types": ["dense", "moe"])", "mlp_layer_types"},
           {R"("moe_layer_freq": [1])", "moe_layer_freq"},
           {R"("moe_layer_freq": [0, 2])", "moe_layer_freq"},
           {sparse + R"(, "index_n_heads": 2)", "index_n_heads"},
           {sparse + R"(, "index_head_dim": 32)", "index_head_dim"},
           {sparse + R"(, "index_block_size": 24)", "index_block_size"},
           {sparse + R"(, "index_block_size": 0)", "index_block_size"},
           {sparse + R"(, "index_topk_blocks": 0)", "index_topk_blocks"},
           {sparse + R"(, "index_local_blocks": 0)", "index_local_blocks"},
           {sparse + R"(, "index_local_blocks": 17)", "index_local_blocks"},
           {R"("sparse_attention_config": {"sparse_attention_freq": [1]})",
            "sparse_attention_config.sparse_attention_freq"},
           {nested + R"("sparse_local_block": 0})", "sparse_attention_config.sparse_local_block"},
           {nested + R"("sparse_init_block": 1})", "sparse_init_block"},
           {nested + R"("sparse_score_type": "mean"})", "sparse_score_type"},
           {nested + R"("use_sparse_attention": false})", "use_sparse_attention"},
           {nested + R"("sparse_disable_index_value": [1, 0]})", "sparse_disable_index_value"},
           {R"("hidden_act": "gelu")", "hidden_act"},
           {R"("rotary_dim": 32)", "rotary_dim"},
           {R"("use_gemma_norm": false)", "use_gemma_norm"},
           {R"("use_routing_bias": false)", "use_routing_bias"},
           {R"("qk_norm_type": "per_layer")", "qk_norm_type"},
           {R"("scoring_func": "softmax")", "scoring_func"},
           {R"("attention_output_gate": true)", "attention_output_gate"},
           {R"("attention_bias": true)", "attention_bias"},
           {R"("n_shared_experts": 2)", "n_shared_experts"},
           {R"("swiglu_limit": 0)", "swiglu_limit"},
           {R"("swiglu_alpha": -1)", "swiglu_alpha"}}) {
    const auto config = ParseMiniMax(
        fmt::format(R"({{"num_hidden_layers": 2, "partial_rotary_factor": 0.5, {}}})", field));
    ASSERT_FALSE(config) << field;
    EXPECT_THAT(config.error().message, HasSubstr(name)) << field;
  }
}

// Per token, 4 heads of 128 numbers in K and in V, and a key of 128 numbers, half of it in each.
TEST(ChosenBlocksCacheTest, BlocksHaveRoomForKeysOfTheIndexer) {
  const auto config = ParseMiniMax(R"({"num_hidden_layers": 2,
      "layer_types": ["full_attention", "minimax_m3_sparse"]})");
  ASSERT_TRUE(config) << config.error().message;
  ModelOptions options;
  options.block_size = 16;
  options.kv_type = ElementType::kBF16;
  const kernels::KvLayout layout = KvLayoutOf(config->spec, options);
  EXPECT_EQ(layout.BlockElements(), 16 * (4 * 128 + 64));
  EXPECT_EQ(layout.ValueBlockElements(), layout.BlockElements());
  // The layer without an indexer has the same room.
  const int64_t bytes = 2 * (2 * 4 * 128 + 128) * 2;
  const auto memory = PlanModel(*config, options, 2);
  ASSERT_TRUE(memory) << memory.error().message;
  EXPECT_EQ(memory->kv_bytes_per_block, bytes * 16);
  const auto text = ProgramText(*config, options, {});
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_THAT(*text, AllOf(HasSubstr(fmt::format("{:>14}", bytes)), HasSubstr("ChooseBlocks")));
}

std::vector<int32_t> MiniMaxTokens() {
  std::vector<int32_t> tokens(110);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i % 127);
  return tokens;
}

TEST(ChosenBlocksCacheTest, BlockSizesDoNotMatter) {
  const std::vector<int32_t> tokens = MiniMaxTokens();
  ModelOptions options = SmallOptions(ElementType::kF32, ElementType::kF32);
  const LogitRows expected = Runner(DataFolder(kTinyMiniMax), options, 1).RunAlone(tokens, 64);
  for (const int block_size : {4, 12, 32, 48}) {
    options.block_size = block_size;
    EXPECT_TRUE(Runner(DataFolder(kTinyMiniMax), options, 2).RunAlone(tokens, 7) == expected)
        << block_size;
  }
}

// Rows that see three blocks or fewer have the same bits as with a choice of all blocks; later rows
// differ.
TEST(ChosenBlocksTest, OnlyRowsWithMoreBlocksChoose) {
  const std::vector<int32_t> tokens = MiniMaxTokens();
  const ModelOptions options = SmallOptions(ElementType::kF32, ElementType::kF32);
  const LogitRows chosen = Runner(DataFolder(kTinyMiniMax), options, 1).RunAlone(tokens, 110);
  CheckpointCopy copy(kTinyMiniMax);
  json::Value text = *copy.config().Find("text_config");
  text.Set("index_topk_blocks", int64_t{100});
  copy.config().Set("text_config", text);
  const LogitRows all = Runner(copy.Write(), options, 1).RunAlone(tokens, 110);
  constexpr size_t kFirst = 3 * 16;
  for (size_t row = 0; row < tokens.size(); ++row)
    EXPECT_EQ(chosen[row] == all[row], row < kFirst) << row;
}

TEST(ChosenBlocksLoadingTest, WrongTensorsAreNamed) {
  for (const char* name :
       {"self_attn.index_q_proj.weight", "self_attn.index_k_proj.weight",
        "self_attn.index_q_norm.weight", "self_attn.index_k_norm.weight",
        "block_sparse_moe.e_score_correction_bias", "block_sparse_moe.experts.5.w3.weight",
        "block_sparse_moe.shared_experts.gate_proj.weight"}) {
    CheckpointCopy copy(kTinyMiniMax);
    const std::string tensor = fmt::format("model.layers.2.{}", name);
    copy.Remove(tensor);
    EXPECT_THAT(copy.Failure(), AllOf(HasSubstr(tensor), HasSubstr("missing"))) << name;
  }
}

TEST(ChosenBlocksTest, InspectShowsTheIndexer) {
  const auto report = InspectModel(DataFolder(kTinyMiniMax));
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_FALSE(report->refusal) << *report->refusal;
  EXPECT_THAT(FormatText(*report),
              HasSubstr("2 heads of 12 choose 3 blocks of 16 positions in 2 layers"));
  EXPECT_EQ(ToJson(*report).Find("config")->Find("index_topk_blocks")->as_integer(), 3);
}

TEST(ChosenBlocksTest, RanksAreRefused) {
  const auto config = LoadModelConfig(DataFolder(kTinyMiniMax));
  ASSERT_TRUE(config);
  EXPECT_TRUE(CheckRanks(config->spec, 1, 1));
  for (const auto& [tensor, stages] : {std::pair(2, 1), std::pair(1, 2)}) {
    const Status status = CheckRanks(config->spec, tensor, stages);
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr("chosen blocks of positions"));
  }
}

}  // namespace
}  // namespace sluice
