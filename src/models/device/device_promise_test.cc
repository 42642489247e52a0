// Bit-equal results of our own kernels, however the work is cut, on the emulated device.
#include <algorithm>
#include <iterator>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "models/device/device_model.h"
#include "models/device/device_model_testing.h"

namespace sluice {
namespace {

using testing::DataFolder;
using testing::DeviceOptions;
using testing::DeviceRunner;
using testing::LogitRows;
using testing::Runner;
using testing::SomeTokens;

struct PromiseCase {
  const char* name;
  ElementType kv_type = ElementType::kBF16;
  ModelOptions::ActivationRounding rounding = ModelOptions::ActivationRounding::kAuto;
};

class DevicePromiseTest : public ::testing::TestWithParam<PromiseCase> {};

// On an emulated device, all products use our own kernels, so a row's results depend only on its
// own sequence.
TEST_P(DevicePromiseTest, HeavyCutsAndCompanionsDoNotMatter) {
  ModelOptions options = DeviceOptions(GetParam().kv_type);
  options.activation_format = GetParam().rounding;
  DeviceRunner device(DataFolder(GetParam().name), options);
  Runner& runner = device.runner();
  const std::vector<int32_t> tokens = SomeTokens(60, 5), others = SomeTokens(35, 6);
  const LogitRows expected = runner.RunAlone(tokens, tokens.size());
  EXPECT_TRUE(runner.RunAlone(tokens, 17) == expected);
  for (int sequence = 0; sequence < 3; ++sequence) runner.Forget(sequence);
  const auto first = tokens.begin(), middle = first + 33;
  LogitRows got = runner.RunStep({{1, others}, {0, {first, middle}}, {2, {7}}})[1];
  for (auto token = middle; token < middle + 2; ++token) {
    LogitRows next = runner.RunStep({{0, {*token}}, {1, {3}}})[0];
    std::move(next.begin(), next.end(), std::back_inserter(got));
  }
  LogitRows rest = runner.RunStep({{0, {middle + 2, tokens.end()}}, {2, others}})[0];
  std::move(rest.begin(), rest.end(), std::back_inserter(got));
  EXPECT_TRUE(got == expected);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, DevicePromiseTest,
                         ::testing::Values(PromiseCase{"llama-bf16", ElementType::kBF16},
                                           PromiseCase{"tiny-mistral-window", ElementType::kBF16},
                                           PromiseCase{"tiny-qwen2-window", ElementType::kF8E4M3},
                                           PromiseCase{"tiny-gemma4-shared", ElementType::kBF16},
                                           PromiseCase{"tiny-gemma4-experts", ElementType::kF8E4M3},
                                           PromiseCase{"tiny-gpt-oss-mxfp4", ElementType::kF8E4M3},
                                           PromiseCase{"tiny-gemma2", ElementType::kF8E4M3},
                                           PromiseCase{"qwen3-modelopt-fp8", ElementType::kF8E4M3},
                                           PromiseCase{"qwen3-llmc-fp8-block", ElementType::kBF16},
                                           PromiseCase{"tiny-qwen3-gptq", ElementType::kBF16},
                                           PromiseCase{"tiny-qwen3-moe-w4a16", ElementType::kBF16},
                                           PromiseCase{
                                               "qwen3-moe-llmc-nvfp4", ElementType::kBF16,
                                               ModelOptions::ActivationRounding::kCheckpoint},
                                           PromiseCase{"llama4-quark-fp8", ElementType::kF8E4M3}),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(DeviceModelTest, TheWantedRowsAreTheSameAlone) {
  DeviceRunner device(DataFolder("qwen3-bf16"), DeviceOptions());
  Runner& runner = device.runner();
  const std::vector<int32_t> tokens = SomeTokens(30, 4);
  const LogitRows expected = runner.RunAlone(tokens, tokens.size());
  const std::vector<int32_t> table = runner.BlockTable(1);
  std::vector<int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<kernels::AttentionSlice> slices = {
      {0, static_cast<int32_t>(tokens.size()), 0, table.data()}};
  for (const std::vector<int32_t>& rows : {std::vector<int32_t>{29}, {3, 4, 20}, {}}) {
    const size_t vocabulary = expected[0].size();
    std::vector<float> logits(rows.size() * vocabulary, -1);
    runner.model().PrepareLogits(logits);
    runner.model().Forward(runner.pool(), {tokens, positions, slices, rows}, runner.cache(),
                           logits.data());
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto begin = logits.begin() + static_cast<ptrdiff_t>(i * vocabulary);
      EXPECT_TRUE(std::equal(begin, begin + static_cast<ptrdiff_t>(vocabulary),
                             expected[static_cast<size_t>(rows[i])].begin()))
          << rows[i];
    }
    runner.model().PrepareLogits({});
  }
}

// Results have the same bits whether copies and kernels run immediately or only when a caller
// waits, and whether or not arrays with disjoint lifetimes share memory.
TEST(DeviceModelTest, WhenAndWhereTheDeviceWorksDoesNotShow) {
  for (const char* name : {"tiny-qwen2-window", "qwen3-moe-llmc-nvfp4"}) {
    DeviceRunner late(DataFolder(name), DeviceOptions(), testing::kArraysApart);
    DeviceRunner early(DataFolder(name), DeviceOptions(), {.runs_at_once = true});
    for (const size_t count : {20, 5, 33}) {
      const std::vector<int32_t> tokens = SomeTokens(count, count);
      EXPECT_TRUE(late.runner().RunAlone(tokens, 8) == early.runner().RunAlone(tokens, 8));
    }
  }
}

// Layers that attend only within a chunk have separate blocks and block tables.
TEST(DeviceModelTest, GroupsOfTheCacheGiveTheSameLogits) {
  const char* const name = "tiny-llama4-mixed";
  const ModelOptions options = DeviceOptions();
  DeviceRunner device(DataFolder(name), options);
  Runner& runner = device.runner();
  const std::vector<int32_t> tokens = SomeTokens(50, 8);
  const LogitRows expected = runner.RunAlone(tokens, tokens.size());
  const KvGroups& groups = device.memory().kv_groups;
  ASSERT_GT(groups.num_groups(), 1);
  const int64_t per_sequence = Runner::BlocksPerSequence(options);
  const auto config = LoadModelConfig(DataFolder(name));
  KvCache cache = KvCache::Wrap(KvLayoutOf(config->spec, options), groups,
                                per_sequence * groups.num_groups(), device.kv_memory());
  std::vector<std::vector<int32_t>> tables(static_cast<size_t>(groups.num_groups()));
  for (int64_t block = per_sequence * groups.num_groups() - 1; block >= 0; --block)
    tables[static_cast<size_t>(block % groups.num_groups())].push_back(static_cast<int32_t>(block));
  const size_t vocabulary = expected[0].size();
  int32_t context = 0;
  for (const int32_t count : {33, 1, 16}) {
    std::vector<int32_t> positions(static_cast<size_t>(count)), rows(positions.size());
    std::iota(positions.begin(), positions.end(), context);
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<kernels::AttentionSlice> slices;
    for (std::vector<int32_t>& table : tables) {
      slices.push_back({0, count, context, table.data()});
    }
    std::vector<float> logits(rows.size() * vocabulary);
    const auto mine = std::span(tokens).subspan(static_cast<size_t>(context), rows.size());
    runner.model().Forward(runner.pool(), {mine, positions, slices, rows, groups.num_groups()},
                           cache, logits.data());
    for (size_t row = 0; row < rows.size(); ++row) {
      EXPECT_TRUE(std::equal(expected[static_cast<size_t>(context) + row].begin(),
                             expected[static_cast<size_t>(context) + row].end(),
                             logits.begin() + static_cast<ptrdiff_t>(row * vocabulary)))
          << context << " + " << row;
    }
    context += count;
  }
}

// Contexts are longer than one thread block processes, so sequences of one token are split.
TEST(DeviceModelTest, HeavyLongSequencesGiveTheSameLogitsTokenByToken) {
  ModelOptions options = DeviceOptions();
  options.max_rows = options.max_logit_rows = options.max_context = 640;
  options.max_slices = 1;
  DeviceRunner device(DataFolder("tiny-qwen3-bias"), options);
  const std::vector<int32_t> tokens = SomeTokens(600, 9);
  const LogitRows expected = device.runner().RunAlone(tokens, tokens.size());
  const size_t first = 592;
  device.runner().RunAlone({tokens.begin(), tokens.begin() + first}, first);
  for (size_t i = first; i < tokens.size(); ++i)
    EXPECT_TRUE(device.runner().RunStep({{0, {tokens[i]}}})[0][0] == expected[i]) << i;
}

}  // namespace
}  // namespace sluice
