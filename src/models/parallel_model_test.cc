// Tests that logits are bit-equal for any number of ranks, whether ranks share each layer or divide
// the layers among them.
#include "models/parallel_model.h"

#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>
#include <random>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_testing.h"
#include "kernels/dispatch.h"
#include "models/parallel_testing.h"
#include "models/share.h"
#include "models/weights.h"
#include "parallel/local_group.h"

namespace sluice {
namespace {

using testing::Cut;
using testing::DataFolder;
using ::testing::HasSubstr;
using testing::kCuts;
using testing::LogitRows;
using testing::MakeRanks;
using testing::OptionsOf;
using testing::RowsUnlike;
using testing::Runner;
using testing::SmallOptions;
using testing::SomeTokens;
using testing::TemporaryFolder;
using testing::TestTensor;
using Rounding = ModelOptions::ActivationRounding;

// Runs a prompt in chunks together with other sequences, then a few tokens one by one.
LogitRows RunMixed(Runner& runner, const std::vector<int32_t>& tokens,
                   const std::vector<int32_t>& others) {
  for (int sequence = 0; sequence < 3; ++sequence) runner.Forget(sequence);
  const auto at = [&](int64_t index) { return tokens.begin() + index; };
  const auto end = static_cast<int64_t>(tokens.size());
  LogitRows rows = runner.RunStep({{1, others}, {0, {at(0), at(33)}}, {2, {7}}})[1];
  const auto add = [&](LogitRows more) {
    std::move(more.begin(), more.end(), std::back_inserter(rows));
  };
  add(runner.RunStep({{0, {at(33), at(end - 3)}}, {2, others}})[0]);
  for (int64_t i = end - 3; i < end; ++i)
    add(runner.RunStep({{0, {at(i), at(i + 1)}}, {1, {3}}})[0]);
  return rows;
}

struct Case {
  const char* name;
  ElementType compute_type = ElementType::kBF16;
  ElementType kv_type = ElementType::kBF16;
  Rounding rounding = Rounding::kAuto;
};

// Covers all families and all stored formats.
constexpr Case kCases[] = {
    {"llama-bf16"},
    {"llama-bf16", ElementType::kF32, ElementType::kF32},
    {"llama-tied-bf16-sharded"},
    {"tiny-llama-bias"},
    {"tiny-llama-wide"},
    {"tiny-mistral-window"},
    {"tiny-qwen2-window"},
    {"tiny-qwen3-bias"},
    {"tiny-gemma3"},
    {"tiny-gemma3-cap"},
    {"tiny-llama4-mixed", ElementType::kBF16, ElementType::kF16},
    {"tiny-qwen3-moe-mixed"},
    {"qwen3-modelopt-fp8", ElementType::kBF16, ElementType::kF8E4M3},
    {"qwen3-llmc-fp8-block"},
    {"qwen3-llmc-fp8-block", ElementType::kBF16, ElementType::kBF16, Rounding::kCheckpoint},
    {"qwen3-llmc-int8-w8a8"},
    {"llama4-quark-fp8", ElementType::kBF16, ElementType::kF8E4M3, Rounding::kCheckpoint},
    {"llama4-modelopt-nvfp4", ElementType::kBF16, ElementType::kF8E4M3},
    {"qwen3-moe-llmc-nvfp4", ElementType::kBF16, ElementType::kF16},
    {"qwen3-moe-quark-mxfp4", ElementType::kBF16, ElementType::kF16},
    {"qwen3-moe-quark-mxfp4", ElementType::kF32, ElementType::kF32, Rounding::kCheckpoint},
    {"tiny-qwen3-w4a16"},
    {"tiny-qwen3-w4a16-actorder"},
    {"tiny-qwen3-moe-w4a16", ElementType::kBF16, ElementType::kF16},
    {"tiny-qwen3-awq"},
    {"tiny-qwen3-gptq"},
    {"tiny-mixtral", ElementType::kBF16, ElementType::kF16},
    {"tiny-qwen2-moe", ElementType::kBF16, ElementType::kF16},
    {"tiny-glm4-moe", ElementType::kBF16, ElementType::kF16},
    {"tiny-phi3-partial"},
    {"tiny-phi3-long", ElementType::kF32, ElementType::kF32},
    {"tiny-granite4"},
    {"tiny-gemma2"},
    {"tiny-olmo2"},
    {"tiny-afmoe"},
    {"tiny-apertus"},
    {"tiny-cohere2"},
    {"tiny-minimax-m2"},
    {"tiny-falcon"},
    {"tiny-gpt-neox"},
    {"tiny-muse-glimmer"},
    {"tiny-laguna"},
    {"tiny-nemotron-h-latent", ElementType::kBF16, ElementType::kF16},
    {"tiny-mimo-v2-flash", ElementType::kBF16, ElementType::kF16},
    {"tiny-gpt2"},
    {"tiny-gpt-bigcode-heads"},
    {"tiny-codegen"},
    {"tiny-bitnet"},
    {"tiny-beam", ElementType::kF32, ElementType::kF32},
    {"tiny-cohere-heads"},
    {"tiny-stablelm-heads"},
    {"tiny-dbrx"},
    {"tiny-lara-mini"},
    {"tiny-phimoe", ElementType::kBF16, ElementType::kF16},
    {"tiny-step3p7"},
    {"tiny-olmo3"},
    {"tiny-olmo3", ElementType::kF32, ElementType::kF32},
    {"tiny-gemma4-shared"},
    {"tiny-gemma4-shared", ElementType::kF32, ElementType::kF32},
    {"tiny-gemma4-shared", ElementType::kBF16, ElementType::kF8E4M3},
    {"tiny-gemma4-experts", ElementType::kBF16, ElementType::kF16},
    {"tiny-gemma4-experts", ElementType::kF32, ElementType::kF32},
    {"tiny-gpt-oss", ElementType::kBF16, ElementType::kF16},
    {"tiny-gpt-oss-mxfp4", ElementType::kBF16, ElementType::kF16},
    {"tiny-gpt-oss-mxfp4", ElementType::kF32, ElementType::kF32, Rounding::kCheckpoint},
    {"tiny-ministral3"},
    {"tiny-smollm3"},
    {"tiny-deepseek-v3", ElementType::kBF16, ElementType::kF16},
    {"tiny-deepseek-v3", ElementType::kF32, ElementType::kF32},
    {"tiny-deepseek-v2", ElementType::kBF16, ElementType::kF16},
    {"tiny-mistral4", ElementType::kBF16, ElementType::kF8E4M3},
    {"tiny-minicpm3"},
    {"tiny-deepseek-v32", ElementType::kBF16, ElementType::kF16},
    {"tiny-glm-dsa", ElementType::kF32, ElementType::kF32},
    {"tiny-lfm2"},
    {"tiny-lfm2-moe", ElementType::kBF16, ElementType::kF16},
    {"tiny-qwen3-next", ElementType::kF32, ElementType::kF32},
    {"tiny-qwen3.5"},
    {"tiny-olmo-hybrid"},
    {"tiny-granite4-hybrid", ElementType::kBF16, ElementType::kF16},
    {"tiny-bamba"},
    {"tiny-nemotron-h"},
    {"tiny-nemotron-h-moe", ElementType::kBF16, ElementType::kF16},
    {"tiny-falcon-h1", ElementType::kF32, ElementType::kF32},
    {"tiny-kimi-linear", ElementType::kBF16, ElementType::kF16},
    {"tiny-bailing-hybrid"},
};

// Compares the model alone with each division for which it has enough parts.
void ExpectBitEqual(const Case& test, const std::vector<Cut>& cuts, int threads = 1) {
  const std::vector<int32_t> tokens = SomeTokens(60, 1), others = SomeTokens(21, 2);
  ModelOptions options = SmallOptions(test.compute_type, test.kv_type);
  options.activation_format = test.rounding;
  options.max_context = 128;
  Runner alone(DataFolder(test.name), options, 1);
  const LogitRows expected = RunMixed(alone, tokens, others);
  const DecoderSpec& spec = alone.model().config().spec;
  for (const Cut& cut : cuts) {
    if (!CheckRanks(spec, cut.tensor_size, cut.num_stages)) continue;
    const auto ranks = MakeRanks(test.name, options, cut, threads);
    ASSERT_NE(ranks, nullptr);
    const LogitRows got = RunMixed(*ranks, tokens, others);
    EXPECT_EQ(RowsUnlike(got, expected), 0u)
        << "rows of " << got.size() << " of " << test.name << ", " << cut.Name();
  }
}

TEST(ParallelModelTest, EveryFamilyAndFormatIsBitEqual) {
  for (const Case& test : kCases) ExpectBitEqual(test, kCuts);
}

TEST(ParallelModelTest, EveryInstructionSetIsBitEqual) {
  for (const kernels::Isa isa : kernels::AvailableIsas()) {
    SCOPED_TRACE(kernels::IsaName(isa));
    kernels::SelectIsa(isa);
    for (const char* name :
         {"qwen3-bf16", "qwen3-llmc-fp8-block", "qwen3-llmc-int8-w8a8", "qwen3-moe-llmc-nvfp4"})
      ExpectBitEqual({name}, {{2, 1}, {3, 1}, {2, 2}});
  }
  ASSERT_TRUE(kernels::SelectIsa("auto"));
}

TEST(ParallelModelTest, ThreadsOfRanksDoNotMatter) {
  ExpectBitEqual({"qwen3-bf16"}, {{2, 1}, {2, 2}}, /*threads=*/2);
}

// Steps have more rows than the MLP and the experts process at once, and few or no wanted rows.
TEST(ParallelModelTest, HeavyLongStepsAndFewLogitsAreBitEqual) {
  ModelOptions options = SmallOptions(ElementType::kBF16, ElementType::kF16);
  options.max_rows = options.max_logit_rows = options.max_context = 1600;
  options.max_slices = 1;
  const std::vector<int32_t> tokens = SomeTokens(1500, 7);
  std::vector<int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  const auto run = [&](Runner& runner, const std::vector<int32_t>& rows) {
    const std::vector<int32_t> table = runner.BlockTable(0);
    const std::vector<kernels::AttentionSlice> slices = {
        {0, static_cast<int32_t>(tokens.size()), 0, table.data()}};
    const auto words = static_cast<size_t>(runner.model().config().vocab_size);
    std::vector<float> logits(rows.size() * words, -1);
    runner.model().Forward(runner.pool(), {tokens, positions, slices, rows}, runner.cache(),
                           logits.data());
    return logits;
  };
  for (const char* name :
       {"tiny-llama4-mixed", "tiny-qwen3-moe-mixed", "tiny-gemma4-shared", "tiny-gemma4-experts"}) {
    Runner alone(DataFolder(name), options, 1);
    const std::vector<std::vector<int32_t>> rows = {{1499}, {}, {3, 4, 800, 1499}, {}};
    std::vector<std::vector<float>> expected;
    for (const std::vector<int32_t>& few : rows) expected.push_back(run(alone, few));
    for (const Cut& cut : {Cut{2, 1}, Cut{1, 2}, Cut{2, 2}}) {
      const auto ranks = MakeRanks(name, options, cut);
      ASSERT_NE(ranks, nullptr);
      for (size_t i = 0; i < rows.size(); ++i)
        EXPECT_TRUE(run(*ranks, rows[i]) == expected[i]) << name << ", " << cut.Name();
    }
  }
}

// Returns the logits of the last token of each chunk, except the first chunk, for which no logits
// are requested. Keeps as many steps in flight as possible, and overwrites the inputs of Begin
// after it returns.
LogitRows RunInFlight(Runner& runner, const std::vector<int32_t>& tokens,
                      const std::vector<size_t>& chunks) {
  const auto vocabulary = static_cast<size_t>(runner.model().config().vocab_size);
  LogitRows results(chunks.size(), std::vector<float>(vocabulary));
  std::vector<int32_t> table = runner.BlockTable(0);
  const std::vector<int32_t> kept_table = table;
  size_t context = 0;
  int in_flight = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const auto begin = tokens.begin() + static_cast<ptrdiff_t>(context);
    std::vector<int32_t> chunk(begin, begin + static_cast<ptrdiff_t>(chunks[i]));
    std::vector<int32_t> positions(chunk.size());
    std::iota(positions.begin(), positions.end(), static_cast<int32_t>(context));
    std::vector<int32_t> rows;
    if (i > 0) rows.push_back(static_cast<int32_t>(chunk.size()) - 1);
    std::vector<kernels::AttentionSlice> slices = {
        {0, static_cast<int32_t>(chunk.size()), static_cast<int32_t>(context), table.data()}};
    if (in_flight == runner.model().steps_in_flight()) {
      runner.model().Finish(runner.pool());
      --in_flight;
    }
    runner.model().Begin(runner.pool(), {chunk, positions, slices, rows}, runner.cache(),
                         results[i].data());
    ++in_flight;
    for (std::vector<int32_t>* used : {&chunk, &positions, &rows, &table})
      std::fill(used->begin(), used->end(), -1);
    slices.front() = {};
    table = kept_table;
    context += chunks[i];
  }
  for (; in_flight > 0; --in_flight) runner.model().Finish(runner.pool());
  return results;
}

TEST(ParallelModelTest, StepsInFlightAreBitEqual) {
  const ModelOptions options = SmallOptions(ElementType::kBF16, ElementType::kBF16);
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 64; ++i) tokens.push_back(i * 37 % 100);
  const std::vector<size_t> chunks = {17, 1, 1, 20, 3, 1, 16, 1, 1, 3};
  for (const char* name : {"llama4-quark-fp8", "tiny-gemma4-shared"}) {
    Runner alone(DataFolder(name), options, 1);
    EXPECT_EQ(alone.model().steps_in_flight(), 1);
    const LogitRows expected = RunInFlight(alone, tokens, chunks);
    for (const Cut cut : {Cut{1, 2}, Cut{1, 3}, Cut{1, 4}, Cut{2, 2}, Cut{2, 3}}) {
      const auto runner = MakeRanks(name, options, cut);
      ASSERT_NE(runner, nullptr);
      EXPECT_EQ(runner->model().steps_in_flight(), cut.num_stages);
      for (int round = 0; round < 2; ++round)
        EXPECT_EQ(RunInFlight(*runner, tokens, chunks), expected) << name << ", " << cut.Name();
    }
  }
}

TEST(ParallelModelTest, RandomWeightsAreThoseOfOneRank) {
  const auto config = LoadModelConfig(DataFolder("tiny-qwen3-bias"));
  ASSERT_TRUE(config);
  ModelOptions options = SmallOptions(ElementType::kBF16, ElementType::kBF16);
  options.load_format = ModelOptions::LoadFormat::kDummy;
  options.max_context = 128;
  Runner alone(*config, options, 1);
  ThreadPool pool(1);
  auto share =
      LoadParallelModel(pool, "", *config, options, OptionsOf({2, 2}, *config, options, 1));
  ASSERT_TRUE(share) << share.error().message;
  Runner ranks(std::move(share->model), std::move(share->cache), options, 1);
  const std::vector<int32_t> tokens = SomeTokens(60, 1), others = SomeTokens(21, 2);
  EXPECT_EQ(RowsUnlike(RunMixed(ranks, tokens, others), RunMixed(alone, tokens, others)), 0u);
}

// Copies the checkpoint. Sets all bits (NaN) in the rows of matrices that rank 0 of two ranks does
// not have.
void SpoilRowsOfOthers(const char* name, const std::filesystem::path& folder) {
  std::filesystem::copy(DataFolder(name), folder, std::filesystem::copy_options::recursive);
  const auto config = LoadModelConfig(folder);
  ASSERT_TRUE(config);
  std::map<std::string, ParameterPart> parts;
  DecoderWeights weights;
  for (const MatrixParameter& matrix :
       ListParameters(config->spec, weights, RankPlace::Of(0, 2, 1)).matrices) {
    for (const ParameterPart& part : matrix.parts) parts[part.name + ".weight"] = part;
  }
  std::vector<TestTensor> tensors;
  {
    const auto checkpoint = Checkpoint::Open(folder);
    ASSERT_TRUE(checkpoint);
    for (const auto& [tensor_name, tensor] : checkpoint->tensors()) {
      std::string bytes(reinterpret_cast<const char*>(tensor.bytes().data()),
                        tensor.bytes().size());
      const auto part = parts.find(std::string(tensor_name));
      if (part != parts.end()) {
        const size_t row_bytes = bytes.size() / static_cast<size_t>(part->second.rows);
        const RowRange held = part->second.held_rows();
        for (int64_t row = 0; row < part->second.rows; ++row) {
          if (row < held.begin || row >= held.end)
            std::memset(bytes.data() + static_cast<size_t>(row) * row_bytes, 0xFF, row_bytes);
        }
      }
      tensors.push_back({std::string(tensor_name), std::string(ElementTypeName(tensor.info->type)),
                         tensor.info->shape, std::move(bytes)});
    }
  }
  testing::WriteFile(folder / "model.safetensors", testing::MakeSafetensors(tensors));
}

TEST(ParallelModelTest, ARankReadsItsOwnRowsAlone) {
  for (const char* name : {"llama-bf16", "qwen3-llmc-fp8-block"}) {
    const TemporaryFolder temporary;
    const std::filesystem::path folder = temporary.path() / "model";
    SpoilRowsOfOthers(name, folder);
    const auto config = LoadModelConfig(folder);
    ASSERT_TRUE(config);
    ModelOptions options = SmallOptions(ElementType::kBF16, ElementType::kBF16);
    options.max_context = 128;
    const auto checkpoint = OpenChecked(folder, *config, options);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    ThreadPool pool(2);
    const auto first = MakeLocalGroup({.size = 2});
    const auto load = [&](int rank) {
      const RankGroups groups{.all = first[static_cast<size_t>(rank)].get(),
                              .stage = first[static_cast<size_t>(rank)].get()};
      return LoadShare(pool, &**checkpoint, *config, options, RankPlace::Of(rank, 2, 1), groups,
                       {});
    };
    const auto own = load(0);
    EXPECT_TRUE(own) << own.error().message;
    EXPECT_FALSE(load(1));
    const auto all =
        LoadParallelModel(pool, folder, *config, options, OptionsOf({2, 1}, *config, options, 1));
    ASSERT_FALSE(all);
    EXPECT_THAT(all.error().message, HasSubstr("rank 1: "));
    EXPECT_THAT(all.error().message, HasSubstr("expected finite numbers"));
  }
}

// Models that share another model's weights compute the same results, even concurrently and after
// that model is destroyed.
TEST(ParallelModelTest, SharedWeightsAreThoseOfTheFirst) {
  const ModelOptions options = SmallOptions(ElementType::kBF16, ElementType::kBF16);
  const char* const name = "qwen3-llmc-fp8-block";
  const auto config = LoadModelConfig(DataFolder(name));
  ASSERT_TRUE(config);
  for (const Cut& cut : {Cut{1, 1}, Cut{2, 2}}) {
    const ParallelOptions parallel = OptionsOf(cut, *config, options, 1);
    ThreadPool pool(1);
    auto loaded = LoadParallelModel(pool, DataFolder(name), *config, options, parallel);
    ASSERT_TRUE(loaded) << loaded.error().message;
    std::vector<std::unique_ptr<Runner>> runners;
    for (int i = 0; i < 2; ++i) {
      auto share = ShareParallelModel(*loaded->model, pool, options, parallel);
      ASSERT_TRUE(share) << share.error().message;
      runners.push_back(
          std::make_unique<Runner>(std::move(share->model), std::move(share->cache), options, 1));
    }
    loaded->model.reset();
    std::vector<LogitRows> rows(2);
    const std::vector<int32_t> tokens = SomeTokens(70, 1), others = SomeTokens(20, 2);
    std::thread other([&] { rows[1] = RunMixed(*runners[1], tokens, others); });
    rows[0] = RunMixed(*runners[0], tokens, others);
    other.join();
    const auto alone = MakeRanks(name, options, {1, 1});
    EXPECT_EQ(rows[0], RunMixed(*alone, tokens, others)) << cut.Name();
    EXPECT_EQ(rows[0], rows[1]) << cut.Name();
  }
  ThreadPool pool(1);
  const auto model = LoadModel(pool, DataFolder(name), *config, options);
  ASSERT_TRUE(model);
  const auto second = (*model)->Share(pool);
  ASSERT_TRUE(second);
  EXPECT_EQ(&dynamic_cast<const DecoderModel&>(**model).weights(),
            &dynamic_cast<const DecoderModel&>(**second).weights())
      << "in memory once";
}

TEST(ParallelModelTest, ThePlanAddsUpTheShares) {
  const auto config = LoadModelConfig(DataFolder("qwen3-llmc-fp8-block"));
  ASSERT_TRUE(config);
  const ModelOptions options = SmallOptions(ElementType::kBF16, ElementType::kBF16);
  const auto alone = PlanModel(*config, options, 1);
  const auto two = PlanParallelModel(*config, options, 1, 2, 1);
  ASSERT_TRUE(alone && two);
  // Ranks divide all weights except norms.
  EXPECT_GE(two->weight_bytes, alone->weight_bytes);
  EXPECT_LT(two->weight_bytes, alone->weight_bytes + alone->weight_bytes / 20);
  EXPECT_EQ(two->kv_bytes_per_block, alone->kv_bytes_per_block);
  const auto share = PlanShare(*config, options, 1, RankPlace::Of(0, 2, 1));
  ASSERT_TRUE(share);
  EXPECT_LT(share->weight_bytes, alone->weight_bytes * 11 / 20);
  // A KV head that two ranks have is counted twice.
  const int kv_heads = config->spec.layers.front().attention.num_kv_heads;
  const auto many = PlanParallelModel(*config, options, 1, 2 * kv_heads, 1);
  ASSERT_TRUE(many);
  EXPECT_EQ(many->kv_bytes_per_block, 2 * alone->kv_bytes_per_block);
  const auto stages = PlanParallelModel(*config, options, 1, 1, 2);
  ASSERT_TRUE(stages);
  EXPECT_EQ(stages->weight_bytes, alone->weight_bytes);
  EXPECT_EQ(stages->kv_bytes_per_group_block, alone->kv_bytes_per_group_block);
  EXPECT_FALSE(PlanParallelModel(*config, options, 1, 64, 1));
}

}  // namespace
}  // namespace sluice
