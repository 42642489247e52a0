// Ranks of one process with LoRA adapters, pooling models, and families with many heads: results
// are bit-identical to those of one rank.
#include <fstream>
#include <map>
#include <set>

#include <gmock/gmock.h>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/checkpoint_testing.h"
#include "models/lora_store.h"
#include "models/lora_testing.h"
#include "models/parallel_testing.h"

namespace sluice {
namespace {

using testing::AdapterFolder;
using testing::Cut;
using testing::DataFolder;
using testing::Fill;
using ::testing::HasSubstr;
using testing::kCuts;
using testing::LogitRows;
using testing::MakeRanks;
using testing::RowsUnlike;
using testing::Runner;
using testing::SmallOptions;
using testing::SomeTokens;
using testing::TemporaryFolder;

// Runs sequences with and without an adapter: a prompt in chunks, and tokens one by one.
LogitRows RunAdapters(Runner& runner) {
  for (int sequence = 0; sequence < 3; ++sequence) runner.Forget(sequence);
  const std::vector<int32_t> tokens = SomeTokens(45, 1), others = SomeTokens(19, 2);
  LogitRows all;
  const auto add = [&](std::vector<LogitRows> parts) {
    for (LogitRows& rows : parts) std::move(rows.begin(), rows.end(), std::back_inserter(all));
  };
  add(runner.RunStep({{0, {tokens.begin(), tokens.begin() + 30}, 1}, {1, others, -1}}));
  add(runner.RunStep({{2, others, 2}, {0, {tokens.begin() + 30, tokens.end()}, 1}}));
  for (int32_t i = 0; i < 3; ++i) add(runner.RunStep({{1, {i}, -1}, {0, {i + 4}, 1}}));
  add(runner.RunStep({{1, {7}, -1}}));
  return all;
}

// Runs a step that needs only each sequence's last row, so that rows are moved.
LogitRows RunLastRows(Runner& runner) {
  const std::vector<int32_t> tokens = SomeTokens(30, 4), adapters = {-1, 1, -1, 2},
                             rows = {4, 11, 20, 29};
  std::vector<int32_t> positions;
  std::vector<std::vector<int32_t>> tables;
  std::vector<kernels::AttentionSlice> slices;
  for (int sequence = 0, first = 0; sequence < 4; ++sequence) {
    tables.push_back(runner.BlockTable(sequence));
    const int32_t end = rows[static_cast<size_t>(sequence)] + 1;
    for (int32_t i = first; i < end; ++i) positions.push_back(i - first);
    slices.push_back({first, end - first, 0, tables.back().data()});
    first = end;
  }
  const auto words = static_cast<size_t>(runner.model().config().vocab_size);
  std::vector<float> logits(rows.size() * words);
  StepInput input{tokens, positions, slices, rows};
  input.adapters = adapters;
  runner.model().Forward(runner.pool(), input, runner.cache(), logits.data());
  LogitRows all;
  for (auto row = logits.begin(); row != logits.end(); row += static_cast<ptrdiff_t>(words))
    all.emplace_back(row, row + static_cast<ptrdiff_t>(words));
  return all;
}

ModelOptions AdapterOptions(ElementType type) {
  ModelOptions options = SmallOptions(type, type);
  options.max_context = 128;
  options.lora = {.num_slots = 3,
                  .max_rank = 8,
                  .type = type,
                  .target_modules = {},
                  .experts = true,
                  .vectors = true,
                  .replaced_modules = {}};
  return options;
}

// Adapters change attention, MLPs, embedding, head, fused layers and experts. Their factors for
// experts are in tensors of all experts or in modules of each expert, also with alternating rows of
// gate and up.
TEST(ParallelAdaptersTest, AdaptersAreBitEqual) {
  for (const auto& [adapter, base] :
       {std::pair{"qwen3-linear", "qwen3-bf16"}, std::pair{"llama-vocabulary", "llama-bf16"},
        std::pair{"gemma3-linear", "tiny-gemma3"}, std::pair{"gemma4-linear", "tiny-gemma4-shared"},
        std::pair{"gemma4-experts", "tiny-gemma4-experts"},
        std::pair{"gemma4-router", "tiny-gemma4-experts"},
        std::pair{"qwen2-moe-gates", "tiny-qwen2-moe"},
        std::pair{"phi3-fused", "tiny-phi3-partial"},
        std::pair{"qwen3-moe-attention", "tiny-qwen3-moe-mixed"},
        std::pair{"qwen3-moe-experts", "tiny-qwen3-moe-mixed"},
        std::pair{"qwen3-moe-each", "tiny-qwen3-moe-mixed"},
        std::pair{"gpt-oss-experts", "tiny-gpt-oss"}, std::pair{"gemma2-saved", "tiny-gemma2"},
        std::pair{"llama-saved", "tiny-llama-bias"}, std::pair{"qwen2-moe-saved", "tiny-qwen2-moe"},
        std::pair{"olmo2-saved", "tiny-olmo2"}, std::pair{"deepseek-saved", "tiny-deepseek-v3"},
        std::pair{"qwen3-fp8", "qwen3-modelopt-fp8"}}) {
    for (const ElementType type : {ElementType::kBF16, ElementType::kF32}) {
      ModelOptions options = AdapterOptions(type);
      const std::set<std::string> replaced = ReplacedModules(AdapterFolder(adapter));
      options.lora.replaced_modules.assign(replaced.begin(), replaced.end());
      Runner alone(DataFolder(base), options, 1);
      const LogitRows without = RunAdapters(alone);
      Fill(alone, 1, AdapterFolder(adapter));
      Fill(alone, 2, AdapterFolder(adapter));
      const LogitRows expected = RunAdapters(alone);
      EXPECT_GT(RowsUnlike(expected, without), 40U) << "the adapter makes a difference";
      const LogitRows last = RunLastRows(alone);
      for (const Cut& cut : kCuts) {
        const DecoderSpec& spec = alone.model().config().spec;
        if (!CheckRanks(spec, cut.tensor_size, cut.num_stages)) continue;
        const auto ranks = MakeRanks(base, options, cut);
        ASSERT_NE(ranks, nullptr);
        EXPECT_EQ(RowsUnlike(RunAdapters(*ranks), without), 0U) << "empty slots";
        Fill(*ranks, 1, AdapterFolder(adapter));
        Fill(*ranks, 2, AdapterFolder(adapter));
        EXPECT_EQ(RowsUnlike(RunAdapters(*ranks), expected), 0U)
            << "rows of " << expected.size() << " of " << adapter << ", " << cut.Name();
        EXPECT_EQ(RowsUnlike(RunLastRows(*ranks), last), 0U) << adapter << ", " << cut.Name();
      }
    }
  }
}

// Each rank that computes a module has all of A; each row of B is on one rank. The planned sizes
// must equal the actual ones.
TEST(ParallelAdaptersTest, RanksDivideTheRowsOfB) {
  const auto config = LoadModelConfig(DataFolder("llama-bf16"));
  ASSERT_TRUE(config);
  const ModelOptions options = AdapterOptions(ElementType::kBF16);
  const auto alone = PlanModel(*config, options, 1);
  const auto halves = PlanShare(*config, options, 1, RankPlace::Of(1, 2, 1));
  const auto second = PlanShare(*config, options, 1, RankPlace::Of(1, 1, 2));
  ASSERT_TRUE(alone && halves && second);
  EXPECT_LT(halves->lora_bytes, alone->lora_bytes);
  EXPECT_GT(2 * halves->lora_bytes, alone->lora_bytes);
  // The second stage has no embedding or head, and half of the layers.
  EXPECT_LT(second->lora_bytes, alone->lora_bytes / 2);
  const auto ranks = MakeRanks("llama-bf16", options, {2, 1});
  ASSERT_NE(ranks, nullptr);
  const LoraLayout& layout = ranks->model().lora()->layout();
  const LoraModule* const down = layout.Find("model.layers.1.mlp.down_proj");
  ASSERT_NE(down, nullptr);
  EXPECT_EQ(down->held, (std::vector{CutRows(down->rows, 0, 2)}));
  // Every stage lists the modules of all layers, so that each stage checks an adapter completely.
  DecoderWeights weights;
  const RankPlace place = RankPlace::Of(1, 1, 2);
  const LoraLayout later = LoraLayout::For(
      config->spec, options.lora, ListParameters(config->spec, weights, place), weights, place);
  EXPECT_TRUE(later.Find("model.layers.0.self_attn.q_proj")->held.empty());
  EXPECT_TRUE(later.Find("lm_head")->held.empty());
  EXPECT_EQ(later.modules.size(), layout.modules.size());
}

// Each rank has some rows of every expert; if rows of gate and up alternate, it has one range of
// the alternating rows.
TEST(ParallelAdaptersTest, RanksDivideEveryExpert) {
  for (const char* name : {"tiny-qwen3-moe-mixed", "tiny-gpt-oss"}) {
    const auto config = LoadModelConfig(DataFolder(name));
    ASSERT_TRUE(config);
    const LoraOptions options = AdapterOptions(ElementType::kBF16).lora;
    std::map<std::string, int64_t> held, rows;
    for (int rank = 0; rank < 2; ++rank) {
      const RankPlace place = RankPlace::Of(rank, 2, 1);
      DecoderWeights weights;
      const LoraLayout layout = LoraLayout::For(
          config->spec, options, ListParameters(config->spec, weights, place), weights, place);
      ASSERT_FALSE(layout.experts.empty());
      for (const LoraExperts& experts : layout.experts) {
        const size_t count = static_cast<size_t>(experts.num_experts) * experts.modules_each;
        for (size_t i = 0; i < count; ++i) {
          const LoraModule& module = layout.modules[experts.first_module + i];
          EXPECT_EQ(module.held.size(), 1U) << module.name;
          EXPECT_LT(module.held_rows(), module.rows) << module.name;
          held[module.name] += module.held_rows();
          rows[module.name] = module.rows;
        }
      }
    }
    EXPECT_EQ(held, rows);
  }
}

TEST(ParallelAdaptersTest, AnAdapterThatIsNotFiniteIsRefused) {
  const TemporaryFolder folder;
  const std::filesystem::path copy = folder.path() / "adapter";
  std::filesystem::copy(AdapterFolder("qwen3-linear"), copy);
  std::string bytes = *ReadFile(copy / "adapter_model.safetensors");
  // The last numbers of the file belong to rows of B on the last rank, or to A.
  std::fill(bytes.end() - 64, bytes.end(), '\xFF');
  std::ofstream(copy / "adapter_model.safetensors", std::ios::binary) << bytes;
  const auto ranks = MakeRanks("qwen3-bf16", AdapterOptions(ElementType::kBF16), {3, 1});
  ASSERT_NE(ranks, nullptr);
  const auto store = ranks->model().lora();
  const auto opened = LoraAdapter::Open(copy, store->layout());
  ASSERT_TRUE(opened) << opened.error().message;
  const Status filled = store->Fill(0, *opened);
  ASSERT_FALSE(filled);
  EXPECT_THAT(filled.error().message, HasSubstr("NaN or infinite"));
}

TEST(ParallelPoolingTest, VectorsAndScoresAreBitEqual) {
  for (const char* name : {"qwen3-bf16", "llama-tied-bf16-sharded", "tiny-gemma3", "tiny-olmo3",
                           "tiny-gemma4-shared"}) {
    auto config = LoadModelConfig(DataFolder(name));
    ASSERT_TRUE(config);
    ModelOptions options = SmallOptions(ElementType::kBF16, ElementType::kBF16);
    options.max_context = 128;
    HeadSpec none, scores;
    none.kind = HeadSpec::Kind::kNone;
    scores.kind = HeadSpec::Kind::kScores;
    scores.num_scores = 2;
    scores.tokens = {3, 77};
    for (const HeadSpec& head : {none, scores}) {
      config->spec.head = head;
      Runner alone(DataFolder(name), *config, options, 1);
      const int64_t width = config->spec.ResultSize();
      const std::vector<float> expected = alone.ResultsOfRows(SomeTokens(40, 5), width);
      for (const Cut& cut : kCuts) {
        if (!CheckRanks(config->spec, cut.tensor_size, cut.num_stages)) continue;
        const auto ranks = MakeRanks(DataFolder(name), *config, options, cut);
        ASSERT_NE(ranks, nullptr);
        EXPECT_TRUE(ranks->ResultsOfRows(SomeTokens(40, 5), width) == expected)
            << name << ", " << width << " numbers, " << cut.Name();
      }
    }
  }
}

// A checkpoint's configuration with enough heads for eight ranks; the weights are random.
ModelConfig ManyHeads(const std::string& name, const std::filesystem::path& folder) {
  json::Value config = *json::Parse(*ReadFile(DataFolder(name) / "config.json"));
  const auto set = [](json::Value& fields) {
    fields.Set("num_attention_heads", 16);
    fields.Set("num_key_value_heads", 4);
    fields.Set("head_dim", 32);
  };
  if (const json::Value* inner = config.Find("text_config"); inner != nullptr) {
    json::Value text = *inner;
    set(text);
    config.Set("text_config", std::move(text));
  } else {
    set(config);
  }
  std::ofstream(folder / "config.json") << json::Write(config);
  auto read = LoadModelConfig(folder);
  EXPECT_TRUE(read) << name << ": " << read.error().message;
  return *std::move(read);
}

TEST(ParallelFamiliesTest, EveryFamilyIsDividedByEight) {
  for (const char* name :
       {"llama-bf16",       "tiny-mistral-window",  "tiny-ministral3",    "tiny-qwen2-window",
        "qwen3-bf16",       "tiny-qwen3-moe-mixed", "tiny-mixtral",       "tiny-qwen2-moe",
        "tiny-glm4-moe",    "tiny-phi3-partial",    "tiny-granite",       "tiny-smollm3",
        "tiny-gemma2",      "tiny-gemma3",          "tiny-gemma4-shared", "tiny-gemma4-experts",
        "tiny-olmo2",       "tiny-olmo3",           "tiny-gpt-oss",       "tiny-gpt-oss-mxfp4",
        "tiny-llama4-mixed"}) {
    const TemporaryFolder folder;
    const ModelConfig config = ManyHeads(name, folder.path());
    ModelOptions options = SmallOptions(ElementType::kBF16, ElementType::kF16);
    options.load_format = ModelOptions::LoadFormat::kDummy;
    options.max_context = 128;
    Runner alone(config, options, 1);
    const LogitRows expected = alone.RunAlone(SomeTokens(50, 3), 20);
    for (const Cut& cut : {Cut{2, 1}, Cut{3, 1}, Cut{4, 1}, Cut{8, 1}, Cut{8, 2}}) {
      ASSERT_TRUE(CheckRanks(config.spec, cut.tensor_size, cut.num_stages)) << name;
      const auto ranks = MakeRanks(folder.path(), config, options, cut);
      ASSERT_NE(ranks, nullptr);
      EXPECT_EQ(RowsUnlike(ranks->RunAlone(SomeTokens(50, 3), 20), expected), 0U)
          << "rows of " << expected.size() << " of " << name << ", " << cut.Name();
    }
  }
}

}  // namespace
}  // namespace sluice
