// Steps captured as graphs and replayed, on the emulated device.
#include <cstring>
#include <functional>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/emulator.h"
#include "models/device/device_decoder.h"
#include "models/device/device_graphs.h"
#include "models/device/device_model_testing.h"

namespace sluice {
namespace {

using testing::DataFolder;
using testing::DeviceOptions;
using testing::DeviceRunner;
using testing::LogitRows;
using testing::Runner;
using testing::SomeTokens;

ModelOptions OptionsOf(ElementType kv_type, int64_t slices = 6) {
  ModelOptions options = DeviceOptions(kv_type);
  options.max_slices = slices;
  return options;
}

struct RecordingCase {
  const char* name;
  ElementType kv_type = ElementType::kBF16;
};

class DeviceRecordingTest : public ::testing::TestWithParam<RecordingCase> {};

// Runs steps with every number of sequences, after prompts of various lengths. Some steps are
// replayed unpadded, some are padded, and some have more sequences than any graph.
TEST_P(DeviceRecordingTest, HeavyReplayedStepsGiveTheSameLogits) {
  const auto [name, kv_type] = GetParam();
  DeviceRunner eager(DataFolder(name), OptionsOf(kv_type));
  DeviceRunner replaying(DataFolder(name), OptionsOf(kv_type));
  Model& model = replaying.runner().model();
  ASSERT_TRUE(model.RecordSteps({.sequences = {1, 2, 5}}, replaying.runner().cache()));
  EXPECT_EQ(model.num_replayed(), 0);
  const auto both = [&](const std::vector<Runner::Part>& parts) {
    EXPECT_TRUE(eager.runner().RunStep(parts) == replaying.runner().RunStep(parts)) << parts.size();
  };
  for (int s = 0; s < 6; ++s) {
    const auto seed = static_cast<uint64_t>(s);
    both({{s, SomeTokens(2 + 11 * static_cast<size_t>(s), seed)}});
  }
  EXPECT_EQ(model.num_replayed(), 0);
  int64_t expected = 0;
  for (const int count : {1, 2, 3, 5, 6, 4, 1, 5}) {
    std::vector<Runner::Part> parts;
    for (int i = 0; i < count; ++i) {
      const int sequence = (i * 5 + count) % 6;
      parts.push_back({sequence, {(17 * i + count) % 128}});
    }
    both(parts);
    expected += count <= 5;
    EXPECT_EQ(model.num_replayed(), expected) << count;
  }
  // A prefill step between decode steps.
  both({{0, SomeTokens(3, 9)}, {1, {4}}});
  EXPECT_EQ(model.num_replayed(), expected);
  both({{0, {1}}, {1, {2}}, {2, {3}}});
  EXPECT_EQ(model.num_replayed(), expected + 1);
}

INSTANTIATE_TEST_SUITE_P(
    Checkpoints, DeviceRecordingTest,
    ::testing::Values(RecordingCase{"llama-bf16"},
                      RecordingCase{"tiny-mistral-window", ElementType::kF8E4M3},
                      RecordingCase{"qwen3-modelopt-fp8", ElementType::kF8E4M3},
                      RecordingCase{"qwen3-moe-llmc-nvfp4"}, RecordingCase{"tiny-llama4-mixed"},
                      RecordingCase{"tiny-gemma4-shared"}, RecordingCase{"tiny-gemma4-experts"},
                      RecordingCase{"tiny-olmo3"}, RecordingCase{"tiny-gpt-oss-mxfp4"}),
    [](const auto& info) {
      std::string name = info.param.name;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

// Beyond the number of positions that one thread block handles, attention of single tokens is
// split.
TEST(DeviceRecording, HeavySplitSequencesGiveTheSameLogits) {
  ModelOptions options = OptionsOf(ElementType::kBF16, 3);
  options.max_rows = options.max_logit_rows = options.max_context = 640;
  DeviceRunner device(DataFolder("tiny-qwen3-bias"), options);
  Runner& runner = device.runner();
  ASSERT_TRUE(runner.model().RecordSteps({.sequences = {3}}, runner.cache()));
  const std::vector<int32_t> longer = SomeTokens(515, 9), shorter = SomeTokens(40, 8);
  const LogitRows expected_longer = runner.RunAlone(longer, longer.size());
  const LogitRows expected_shorter = runner.RunAlone(shorter, shorter.size());
  runner.Forget(0);
  const auto cut = [](const std::vector<int32_t>& tokens, size_t count) {
    return std::vector<int32_t>(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(count));
  };
  // The steps cross position 512, after which attention must be split.
  size_t longest = 508;
  runner.RunStep({{0, cut(longer, longest)}, {1, cut(shorter, 30)}});
  for (size_t i = 30; longest < longer.size(); ++i, ++longest) {
    const auto got = runner.RunStep({{0, {longer[longest]}}, {1, {shorter[i]}}});
    EXPECT_TRUE(got[0][0] == expected_longer[longest]) << longest;
    EXPECT_TRUE(got[1][0] == expected_shorter[i]) << i;
  }
  EXPECT_EQ(runner.model().num_replayed(), 7);
}

TEST(DeviceRecording, WithoutPaddingOtherNumbersAreNotReplayed) {
  DeviceRunner device(DataFolder("qwen3-bf16"), OptionsOf(ElementType::kBF16));
  Runner& runner = device.runner();
  ASSERT_TRUE(runner.model().RecordSteps({.sequences = {1, 3}, .pads = false}, runner.cache()));
  runner.RunStep({{0, {1}}, {1, {2}}});
  EXPECT_EQ(runner.model().num_replayed(), 0);
  runner.RunStep({{0, {1}}, {1, {2}}, {2, {3}}});
  runner.RunStep({{2, {1}}});
  EXPECT_EQ(runner.model().num_replayed(), 2);
}

// A graph is not replayed for a cache at another address than the one with which it was captured.
TEST(DeviceRecording, StepsOfAnotherCacheAreNotReplayed) {
  DeviceRunner device(DataFolder("qwen3-bf16"), OptionsOf(ElementType::kBF16));
  Runner& runner = device.runner();
  ASSERT_TRUE(runner.model().RecordSteps({.sequences = {1}}, runner.cache()));
  const auto config = LoadModelConfig(DataFolder("qwen3-bf16"));
  const int64_t bytes = device.memory().kv_bytes_per_block;
  const auto memory = device.device().Allocate(bytes, "another cache");
  ASSERT_TRUE(memory);
  KvCache other = KvCache::Wrap(KvLayoutOf(config->spec, OptionsOf(ElementType::kBF16)),
                                KvGroups::Uniform(config->num_hidden_layers), 1, memory->data());
  const int32_t token = 5, position = 0, row = 0, block = 0;
  const std::vector<kernels::AttentionSlice> slices = {{0, 1, 0, &block}};
  std::vector<float> logits(static_cast<size_t>(config->vocab_size));
  runner.model().Forward(runner.pool(), {{&token, 1}, {&position, 1}, slices, {&row, 1}}, other,
                         logits.data());
  EXPECT_EQ(runner.model().num_replayed(), 0);
  EXPECT_TRUE(logits == runner.RunStep({{0, {5}}})[0][0]);
  EXPECT_EQ(runner.model().num_replayed(), 1);
}

// A kernel launch, with all its arguments by value.
struct Launch {
  std::string name;
  std::array<unsigned, 5> grid;
  std::vector<unsigned char> args;

  bool operator==(const Launch&) const = default;
};

// Steps with the same size and level have equal launches; only the contents of the memory that
// kernels read differ.
TEST(DeviceRecording, HeavyStepsOfAKindHaveEqualLaunches) {
  ModelOptions options = OptionsOf(ElementType::kBF16, 4);
  options.max_context = 640;
  for (const char* name : {"tiny-qwen3-bias", "qwen3-moe-llmc-nvfp4", "tiny-llama4-mixed",
                           "tiny-gemma4-shared", "tiny-gpt-oss-mxfp4"}) {
    DeviceRunner device(DataFolder(name), options);
    Runner& runner = device.runner();
    auto& decoder = dynamic_cast<DeviceDecoder&>(runner.model());
    const auto config = LoadModelConfig(DataFolder(name));
    const KvGroups& groups = device.memory().kv_groups;
    const int64_t blocks = Runner::BlocksPerSequence(options) * 4;
    const KvCache cache =
        KvCache::Wrap(KvLayoutOf(config->spec, options), groups, blocks, device.kv_memory());
    const auto stream = device.device().CreateStream();
    ASSERT_TRUE(stream);
    const auto launches = [&](const std::vector<int32_t>& contexts, PaddedStep padded,
                              int expected_level) {
      std::vector<int32_t> tokens, positions, rows;
      std::vector<std::vector<int32_t>> tables;
      std::vector<kernels::AttentionSlice> slices;
      for (size_t i = 0; i < contexts.size(); ++i) {
        tokens.push_back(contexts[i] % 100);
        positions.push_back(contexts[i]);
        rows.push_back(static_cast<int32_t>(i));
        tables.push_back(runner.BlockTable(static_cast<int>(i)));
      }
      for (int64_t group = 0; group < groups.num_groups(); ++group) {
        for (size_t i = 0; i < contexts.size(); ++i)
          slices.push_back({static_cast<int64_t>(i), 1, contexts[i], tables[i].data()});
      }
      const auto graph = decoder.Record({tokens, positions, slices, rows, groups.num_groups()},
                                        /*runs_before=*/false, padded, cache);
      EXPECT_TRUE(graph);
      EXPECT_EQ(padded.level, expected_level);
      std::vector<Launch> found;
      emulator::SetRunner([&](const emulator::KernelLaunch& launch) {
        std::vector<unsigned char> args(launch.member_bytes != nullptr ? launch.args_bytes : 0);
        for (size_t i = 0; i < args.size(); ++i) {
          args[i] = static_cast<const unsigned char*>(launch.args)[i] & launch.member_bytes[i];
        }
        const emulator::Grid& grid = launch.grid;
        found.push_back({launch.name,
                         {grid.x, grid.y, grid.z, grid.threads, grid.shared_bytes},
                         std::move(args)});
      });
      (*stream)->Replay(**graph);
      EXPECT_TRUE((*stream)->Synchronize());
      emulator::SetRunner({});
      EXPECT_EQ(std::ssize(found), (*graph)->num_operations());
      return found;
    };
    const std::vector<Launch> once = launches({0}, {.rows = 4}, 0);
    EXPECT_GT(once.size(), 10U);
    EXPECT_TRUE(launches({200, 3, 77}, {.rows = 4}, 0) == once) << name;
    EXPECT_TRUE(launches({50, 400, 1, 9}, {.rows = 4}, 0) == once) << name;
    EXPECT_FALSE(launches({0}, {.rows = 3}, 0) == once) << name << ": another size";
    const std::vector<Launch> split = launches({0}, {.rows = 4, .level = 1}, 1);
    EXPECT_FALSE(split == once) << name;
    EXPECT_TRUE(launches({600, 600, 1, 600}, {.rows = 4}, 1) == split) << name;
    EXPECT_TRUE(launches({2, 555}, {.rows = 4}, 1) == split) << name;
  }
}

class DeviceGraphMemory : public ::testing::TestWithParam<const char*> {};

// The memory plan counts the operations of a graph: no fewer than it has, and not many more.
TEST_P(DeviceGraphMemory, IsThatOfTheOperations) {
  ModelOptions options = OptionsOf(ElementType::kBF16, 4);
  options.max_context = 64;  // all steps have the same level
  options.recorded = {.sequences = {3}};
  DeviceRunner device(DataFolder(GetParam()), options);
  auto& decoder = dynamic_cast<DeviceDecoder&>(device.runner().model());
  const auto config = LoadModelConfig(DataFolder(GetParam()));
  ASSERT_TRUE(config);
  KvCache& cache = device.runner().cache();
  const int32_t token = 0, position = 0, row = 0, block = 0;
  const std::vector<kernels::AttentionSlice> slices(static_cast<size_t>(cache.num_groups()),
                                                    {0, 1, 0, &block});
  StepInput input = {{&token, 1}, {&position, 1}, slices, {&row, 1}, cache.num_groups()};
  const StateSlot state = {.slot = 0};
  if (config->spec.KeepsStates()) input.states = {&state, 1};
  PaddedStep padded = {.rows = 3};
  const auto graph = decoder.Record(input, /*runs_before=*/false, padded, cache);
  ASSERT_TRUE(graph) << graph.error().message;
  const int64_t planned = device.memory().graph_bytes / kGraphOperationBytes;
  EXPECT_LE((*graph)->num_operations(), planned);
  EXPECT_GE((*graph)->num_operations() * 2, planned);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, DeviceGraphMemory,
                         ::testing::Values("llama-bf16", "tiny-olmo2", "tiny-qwen3-w4a16-actorder",
                                           "tiny-gpt-oss-mxfp4", "qwen3-moe-llmc-nvfp4",
                                           "tiny-qwen2-moe", "tiny-gemma4-shared",
                                           "tiny-deepseek-v3-even", "tiny-deepseek-v32-even",
                                           "tiny-lfm2-even", "tiny-qwen3.5",
                                           "tiny-nemotron-h-moe-even", "tiny-kimi-linear"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           std::ranges::replace(name, '.', '_');
                           return name;
                         });

// If a size cannot be captured, its steps run eagerly, and other sizes are replayed.
TEST(DeviceRecording, AStepThatCannotBeRecordedIsComputed) {
  DeviceRunner device(DataFolder("qwen3-bf16"), OptionsOf(ElementType::kBF16));
  Runner& runner = device.runner();
  device.device().FailNextLaunch();
  ASSERT_TRUE(
      runner.model().RecordSteps({.sequences = {1, 2}, .runs_before = false}, runner.cache()));
  const LogitRows alone = runner.RunAlone({5}, 1);
  EXPECT_EQ(runner.model().num_replayed(), 0) << "its first launch failed";
  runner.Forget(1);
  EXPECT_TRUE(runner.RunStep({{1, {5}}, {2, {7}}})[0] == alone);
  EXPECT_EQ(runner.model().num_replayed(), 1);
  device.device().Lose();
  EXPECT_FALSE(runner.model().RecordSteps({.sequences = {1}}, runner.cache()));
}

// A failed replay does not affect the next one.
TEST(DeviceRecording, AReplayThatFailsIsTold) {
  DeviceRunner device(DataFolder("qwen3-bf16"), OptionsOf(ElementType::kBF16));
  Runner& runner = device.runner();
  ASSERT_TRUE(runner.model().RecordSteps({.sequences = {1}}, runner.cache()));
  const LogitRows alone = runner.RunAlone({5}, 1);
  device.device().FailNextCopy();
  EXPECT_THROW(runner.RunAlone({5}, 1), std::runtime_error);
  EXPECT_TRUE(runner.RunAlone({5}, 1) == alone);
  EXPECT_EQ(runner.model().num_replayed(), 3);
}

}  // namespace
}  // namespace sluice
