// Tests the CPU promise: the logits of a sequence are bit-equal for any division of its prompt into
// chunks, any other sequences in the step and any number of threads.
#include <random>

#include <gtest/gtest.h>

#include "models/model_testing.h"

namespace sluice {
namespace {

using testing::DataFolder;
using testing::LogitRows;
using testing::Runner;
using testing::SmallOptions;

std::vector<int32_t> RandomTokens(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 500);
  return tokens;
}

class PromiseTest : public ::testing::TestWithParam<ElementType> {
 protected:
  std::unique_ptr<Runner> MakeRunner(const char* name, int num_threads) {
    return std::make_unique<Runner>(DataFolder(name), SmallOptions(GetParam(), GetParam()),
                                    num_threads);
  }
};

TEST_P(PromiseTest, ChunksAndThreadsDoNotMatter) {
  const std::vector<int32_t> tokens = RandomTokens(300, 1);
  for (const char* name : {"llama-bf16", "qwen3-bf16"}) {
    const LogitRows expected = MakeRunner(name, 1)->RunAlone(tokens, tokens.size());
    for (const int num_threads : {1, 2, 3}) {
      const auto runner = MakeRunner(name, num_threads);
      for (const size_t chunk : {size_t{7}, size_t{64}, tokens.size()}) {
        EXPECT_TRUE(runner->RunAlone(tokens, chunk) == expected)
            << name << ", chunks of " << chunk << ", threads " << num_threads;
      }
    }
  }
}

// Covers layers with different heads, with shared keys, or with embeddings; experts in parallel
// with the MLP; latent attention; gates after attention; layer norms; attention and MLP in
// parallel.
TEST_P(PromiseTest, LayersThatDiffer) {
  std::vector<int32_t> tokens = RandomTokens(90, 7), other = RandomTokens(33, 8);
  for (int32_t& token : tokens) token %= 128;
  for (int32_t& token : other) token %= 128;
  for (const char* name :
       {"tiny-gemma4-shared", "tiny-gemma4-experts", "tiny-deepseek-v3", "tiny-deepseek-v2",
        "tiny-mistral4", "tiny-minicpm3", "tiny-deepseek-v32", "tiny-glm-dsa", "tiny-afmoe",
        "tiny-apertus", "tiny-cohere2", "tiny-muse-glimmer", "tiny-phimoe", "tiny-step3p7",
        "tiny-minimax-m3"}) {
    const LogitRows expected = MakeRunner(name, 1)->RunAlone(tokens, tokens.size());
    for (const int num_threads : {1, 3}) {
      const auto runner = MakeRunner(name, num_threads);
      for (const size_t chunk : {size_t{1}, size_t{7}, size_t{64}})
        EXPECT_TRUE(runner->RunAlone(tokens, chunk) == expected) << name << ", chunks of " << chunk;
      for (int sequence = 0; sequence < 3; ++sequence) runner->Forget(sequence);
      EXPECT_TRUE(runner->RunStep({{0, other}, {1, tokens}, {2, other}})[1] == expected) << name;
    }
  }
}

// Layers with states: results are the same for any chunks, and after continuing from a snapshot.
TEST_P(PromiseTest, StatesAreTheSameFromAnyChunk) {
  std::vector<int32_t> tokens = RandomTokens(150, 9), other = RandomTokens(33, 10);
  for (int32_t& token : tokens) token %= 128;
  for (int32_t& token : other) token %= 128;
  for (const char* name :
       {"tiny-lfm2", "tiny-lfm2-moe", "tiny-qwen3-next", "tiny-qwen3.5", "tiny-olmo-hybrid",
        "tiny-granite4-hybrid", "tiny-bamba", "tiny-falcon-h1", "tiny-nemotron-h",
        "tiny-nemotron-h-moe", "tiny-kimi-linear", "tiny-bailing-hybrid", "tiny-deepseek-v4"}) {
    const LogitRows expected = MakeRunner(name, 1)->RunAlone(tokens, tokens.size());
    for (const int num_threads : {1, 3}) {
      const auto runner = MakeRunner(name, num_threads);
      for (const size_t chunk : {size_t{1}, size_t{2}, size_t{7}, size_t{64}})
        EXPECT_TRUE(runner->RunAlone(tokens, chunk) == expected) << name << ", chunks of " << chunk;
      for (int sequence = 0; sequence < 3; ++sequence) runner->Forget(sequence);
      EXPECT_TRUE(runner->RunStep({{0, other}, {1, tokens}, {2, other}})[1] == expected) << name;

      // Takes snapshots after rows of two slices in one step, then continues from each.
      for (int sequence = 0; sequence < 2; ++sequence) runner->Forget(sequence);
      const std::vector<int32_t> kept = {2, 23, 149, 150};  // the index is the slot
      for (size_t slot = 0; slot < kept.size(); ++slot)
        runner->SnapshotState(1, kept[slot], static_cast<int32_t>(slot));
      runner->SnapshotState(0, 33, 4);
      EXPECT_TRUE(runner->RunStep({{0, other}, {1, tokens}})[1] == expected) << name;
      for (const int32_t slot : {2, 0, 1}) {
        const int32_t rows = kept[static_cast<size_t>(slot)];
        runner->CopyState(slot, runner->StateOf(1));
        runner->GoBack(1, rows);
        const LogitRows got = runner->RunStep({{1, {tokens.begin() + rows, tokens.end()}}})[0];
        const LogitRows last(expected.begin() + rows, expected.end());
        EXPECT_TRUE(got == last) << name << ", from a snapshot after " << rows;
      }
    }
  }
}

TEST_P(PromiseTest, TokensOneByOneGiveTheSameLogits) {
  const std::vector<int32_t> tokens = RandomTokens(40, 2);
  const auto runner = MakeRunner("llama-bf16", 2);
  const LogitRows expected = runner->RunAlone(tokens, tokens.size());
  EXPECT_TRUE(runner->RunAlone(tokens, 1) == expected);
}

TEST_P(PromiseTest, CompanionsDoNotMatter) {
  const std::vector<int32_t> tokens = RandomTokens(90, 3);
  const auto runner = MakeRunner("llama-bf16", 2);
  const LogitRows expected = runner->RunAlone(tokens, tokens.size());
  for (int sequence = 0; sequence < 8; ++sequence) runner->Forget(sequence);
  // Seven other sequences of various lengths and ages, before and after the sequence under test.
  LogitRows got;
  for (size_t begin = 0, step = 0; begin < tokens.size(); ++step) {
    const size_t count = std::min(tokens.size() - begin, step % 3 == 0 ? size_t{1} : 10 * step);
    std::vector<Runner::Part> parts;
    size_t mine = 0;
    for (int sequence = 0; sequence < 8; ++sequence) {
      if (sequence == 5) {
        mine = parts.size();
        parts.push_back({5,
                         {tokens.begin() + static_cast<ptrdiff_t>(begin),
                          tokens.begin() + static_cast<ptrdiff_t>(begin + count)}});
      } else if ((static_cast<size_t>(sequence) + step) % 4 != 0) {
        parts.push_back({sequence, RandomTokens(1 + 9 * (static_cast<size_t>(sequence) % 3),
                                                100 * step + static_cast<size_t>(sequence))});
      }
    }
    LogitRows rows = runner->RunStep(parts)[mine];
    std::move(rows.begin(), rows.end(), std::back_inserter(got));
    begin += count;
  }
  EXPECT_TRUE(got == expected);
}

TEST_P(PromiseTest, TheWantedRowsAreTheSameAlone) {
  const std::vector<int32_t> tokens = RandomTokens(50, 4);
  const auto runner = MakeRunner("qwen3-bf16", 2);
  const LogitRows expected = runner->RunAlone(tokens, tokens.size());
  const std::vector<int32_t> table = runner->BlockTable(1);
  std::vector<int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<kernels::AttentionSlice> slices = {
      {0, static_cast<int32_t>(tokens.size()), 0, table.data()}};
  for (const std::vector<int32_t>& rows : {std::vector<int32_t>{49}, {0}, {3, 4, 20, 49}, {}}) {
    const size_t vocabulary = expected[0].size();
    std::vector<float> logits(rows.size() * vocabulary, -1);
    runner->model().Forward(runner->pool(), {tokens, positions, slices, rows}, runner->cache(),
                            logits.data());
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto begin = logits.begin() + static_cast<ptrdiff_t>(i * vocabulary);
      EXPECT_TRUE(std::equal(begin, begin + static_cast<ptrdiff_t>(vocabulary),
                             expected[static_cast<size_t>(rows[i])].begin()))
          << rows[i];
    }
  }
}

// Covers all stored formats, experts, windows and chunks of attention, and rounded inputs.
TEST(FormatsPromiseTest, CutsThreadsAndCompanionsDoNotMatter) {
  using Rounding = ModelOptions::ActivationRounding;
  const struct {
    const char* name;
    ElementType compute_type, kv_type;
    Rounding rounding;
  } kCases[] = {
      {"tiny-llama4-mixed", ElementType::kBF16, ElementType::kF16, Rounding::kAuto},
      {"tiny-llama4-mixed", ElementType::kF32, ElementType::kF32, Rounding::kAuto},
      {"tiny-qwen3-moe-mixed", ElementType::kBF16, ElementType::kBF16, Rounding::kAuto},
      {"tiny-mistral-window", ElementType::kBF16, ElementType::kBF16, Rounding::kAuto},
      {"tiny-gemma2", ElementType::kBF16, ElementType::kBF16, Rounding::kAuto},
      {"tiny-gpt-oss", ElementType::kF32, ElementType::kF32, Rounding::kAuto},
      {"tiny-gpt-oss-mxfp4", ElementType::kBF16, ElementType::kF16, Rounding::kAuto},
      {"tiny-qwen2-moe", ElementType::kBF16, ElementType::kF16, Rounding::kAuto},
      {"tiny-glm4-moe", ElementType::kBF16, ElementType::kF16, Rounding::kAuto},
      {"tiny-granite", ElementType::kBF16, ElementType::kBF16, Rounding::kAuto},
      {"tiny-qwen2-window", ElementType::kBF16, ElementType::kBF16, Rounding::kAuto},
      {"llama4-modelopt-nvfp4", ElementType::kBF16, ElementType::kF8E4M3, Rounding::kAuto},
      {"llama4-modelopt-nvfp4", ElementType::kF32, ElementType::kF8E4M3, Rounding::kCheckpoint},
      {"llama4-quark-fp8", ElementType::kBF16, ElementType::kF8E4M3, Rounding::kCheckpoint},
      {"qwen3-moe-quark-mxfp4", ElementType::kBF16, ElementType::kF16, Rounding::kAuto},
      {"qwen3-moe-quark-mxfp4", ElementType::kF32, ElementType::kF32, Rounding::kCheckpoint},
      {"qwen3-modelopt-fp8", ElementType::kBF16, ElementType::kF8E4M3, Rounding::kAuto},
      {"qwen3-llmc-fp8-block", ElementType::kBF16, ElementType::kBF16, Rounding::kAuto},
      {"qwen3-llmc-fp8-block", ElementType::kBF16, ElementType::kBF16, Rounding::kCheckpoint},
      {"qwen3-llmc-int8-w8a8", ElementType::kBF16, ElementType::kBF16, Rounding::kAuto},
      {"tiny-qwen3-w4a16", ElementType::kBF16, ElementType::kBF16, Rounding::kAuto},
      {"tiny-qwen3-w4a16-actorder", ElementType::kBF16, ElementType::kBF16, Rounding::kAuto},
      {"tiny-qwen3-w4a16-actorder", ElementType::kF32, ElementType::kF32, Rounding::kAuto},
      {"tiny-qwen3-moe-w4a16", ElementType::kBF16, ElementType::kF16, Rounding::kAuto},
      {"qwen3-llmc-int8-w8a8", ElementType::kF32, ElementType::kF32, Rounding::kBf16},
      {"tiny-laguna", ElementType::kBF16, ElementType::kBF16, Rounding::kAuto},
      {"tiny-nemotron-h-latent", ElementType::kBF16, ElementType::kBF16, Rounding::kAuto},
      {"tiny-mimo-v2-flash", ElementType::kBF16, ElementType::kF16, Rounding::kAuto},
      {"tiny-gpt2", ElementType::kBF16, ElementType::kBF16, Rounding::kAuto},
      {"tiny-bitnet", ElementType::kBF16, ElementType::kBF16, Rounding::kAuto},
      {"tiny-beam", ElementType::kF32, ElementType::kF32, Rounding::kAuto},
      {"tiny-cohere-heads", ElementType::kBF16, ElementType::kBF16, Rounding::kAuto},
  };
  std::vector<int32_t> tokens = RandomTokens(90, 5), others = RandomTokens(70, 6);
  for (std::vector<int32_t>* ids : {&tokens, &others}) {
    for (int32_t& id : *ids) id %= 128;
  }
  for (const auto& test : kCases) {
    ModelOptions options = SmallOptions(test.compute_type, test.kv_type);
    options.activation_format = test.rounding;
    Runner alone(DataFolder(test.name), options, 1), several(DataFolder(test.name), options, 3);
    const LogitRows expected = alone.RunAlone(tokens, tokens.size());
    for (const size_t chunk : {size_t{1}, size_t{37}, tokens.size()}) {
      EXPECT_TRUE(several.RunAlone(tokens, chunk) == expected) << test.name << " " << chunk;
    }
    for (int sequence = 0; sequence < 3; ++sequence) several.Forget(sequence);
    const auto first = tokens.begin(), middle = first + 33;
    LogitRows got = several.RunStep({{1, others}, {0, {first, middle}}, {2, {7}}})[1];
    LogitRows rest = several.RunStep({{0, {middle, tokens.end()}}, {2, others}})[0];
    std::move(rest.begin(), rest.end(), std::back_inserter(got));
    EXPECT_TRUE(got == expected) << test.name << " among others";
  }
}

// Steps have more rows than the MLP, the experts and the splitting of inputs process at once.
TEST(FormatsPromiseTest, StepsAreCutInsideWithoutATrace) {
  ModelOptions options = SmallOptions(ElementType::kBF16, ElementType::kF16);
  options.max_rows = options.max_logit_rows = options.max_context = 1600;
  options.max_slices = 1;
  std::vector<int32_t> tokens = RandomTokens(1500, 7);
  for (int32_t& id : tokens) id %= 128;
  for (const char* name : {"tiny-qwen3-moe-mixed", "tiny-llama4-mixed", "tiny-gpt-oss-mxfp4"}) {
    Runner runner(DataFolder(name), options, 2);
    const LogitRows expected = runner.RunAlone(tokens, 100);
    EXPECT_TRUE(runner.RunAlone(tokens, tokens.size()) == expected) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, PromiseTest,
                         ::testing::Values(ElementType::kBF16, ElementType::kF32),
                         [](const auto& info) { return std::string(ElementTypeName(info.param)); });

}  // namespace
}  // namespace sluice
