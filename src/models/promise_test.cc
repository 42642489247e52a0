// The CPU promise: the logits of a sequence are bit-equal however its prompt is cut, whatever else
// is in the step, and on any number of threads.
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
  // Seven others, of all lengths and ages, before and behind the one that is watched.
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

INSTANTIATE_TEST_SUITE_P(Types, PromiseTest,
                         ::testing::Values(ElementType::kBF16, ElementType::kF32),
                         [](const auto& info) { return std::string(ElementTypeName(info.param)); });

}  // namespace
}  // namespace sluice
