// Logits are bit-identical for any number of devices that share layers or are pipeline stages. If
// one device fails, all ranks fail.
#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/device/device_executor.h"
#include "models/device/device_model_testing.h"
#include "models/device/device_ranks_testing.h"
#include "models/device/device_weights.h"
#include "models/parallel_model.h"
#include "models/shard.h"
#include "models/weights.h"
#include "parallel/emulated_nccl.h"

namespace sluice {
namespace {

using testing::DataFolder;
using testing::DeviceCut;
using testing::DeviceOptions;
using testing::DeviceRanksRunner;
using testing::DeviceRunner;
using ::testing::HasSubstr;
using testing::LogitRows;
using testing::RowsUnlike;
using testing::Runner;
using testing::SomeTokens;
using Rounding = ModelOptions::ActivationRounding;

// Devices that do not address each other's memory.
constexpr EmulatedDeviceOptions kByNccl = {.addresses_others = false};

// Runs a prompt in chunks together with other sequences, then a single token.
LogitRows RunMixed(Runner& runner) {
  const std::vector<int32_t> tokens = SomeTokens(24, 1), others = SomeTokens(5, 2);
  const auto first = tokens.begin();
  LogitRows rows = runner.RunStep({{1, others}, {0, {first, first + 20}}})[1];
  const auto add = [&](LogitRows more) {
    std::move(more.begin(), more.end(), std::back_inserter(rows));
  };
  add(runner.RunStep({{0, {first + 20, first + 23}}, {2, {7}}})[0]);
  add(runner.RunStep({{0, {first + 23, first + 24}}})[0]);
  return rows;
}

struct DeviceCase {
  const char* name;
  std::vector<DeviceCut> cuts;
  ElementType kv_type = ElementType::kBF16;
  Rounding rounding = Rounding::kAuto;
  ModelOptions::LoadFormat load_format = ModelOptions::LoadFormat::kAuto;
  LoadQuantization quantization = {};
};

class DeviceRanksTest : public ::testing::TestWithParam<DeviceCase> {};

TEST_P(DeviceRanksTest, HeavyEveryCutIsBitEqual) {
  const DeviceCase& test = GetParam();
  ModelOptions options = DeviceOptions(test.kv_type);
  options.activation_format = test.rounding;
  options.load_format = test.load_format;
  options.max_rows = options.max_logit_rows = options.max_context = 32;
  DeviceRunner alone(DataFolder(test.name), options, testing::kArraysApart, test.quantization);
  const LogitRows expected = RunMixed(alone.runner());
  for (const DeviceCut& cut : test.cuts) {
    // Results must not depend on whether arrays share memory.
    DeviceRanksRunner ranks(test.name, options, cut,
                            cut.num_stages > 1 ? testing::kArraysApart : testing::kArraysShared,
                            std::chrono::minutes(2), test.quantization);
    ASSERT_FALSE(HasFailure());
    EXPECT_EQ(RowsUnlike(RunMixed(ranks.runner()), expected), 0u)
        << "of " << expected.size() << " rows, tp " << cut.tensor_size << " pp " << cut.num_stages;
  }
  DeviceRanksRunner by_nccl(test.name, options, test.cuts.front(), kByNccl, std::chrono::minutes(2),
                            test.quantization);
  ASSERT_FALSE(HasFailure());
  EXPECT_EQ(RowsUnlike(RunMixed(by_nccl.runner()), expected), 0u) << "by NCCL";
}

const std::vector<DeviceCut> kAllCuts = {{2, 1}, {3, 1}, {4, 1}, {1, 2}, {2, 2}};
const std::vector<DeviceCut> kThree = {{3, 1}};
const std::vector<DeviceCut> kTwo = {{2, 1}};

INSTANTIATE_TEST_SUITE_P(
    Checkpoints, DeviceRanksTest,
    ::testing::Values(
        DeviceCase{"qwen3-bf16", kAllCuts}, DeviceCase{"llama-tied-bf16-sharded", kThree},
        DeviceCase{"tiny-gemma3", kTwo}, DeviceCase{"tiny-qwen2-window", kTwo},
        DeviceCase{"tiny-gemma4-experts", {{2, 1}, {1, 2}}}, DeviceCase{"tiny-gpt-oss", kThree},
        DeviceCase{"tiny-gpt-oss-mxfp4", {{2, 1}, {1, 2}}}, DeviceCase{"tiny-gemma2", kTwo},
        DeviceCase{"tiny-glm4-moe", {{2, 1}, {1, 2}}},
        DeviceCase{"tiny-deepseek-v3-even", {{2, 1}, {3, 1}, {1, 2}}},
        DeviceCase{"tiny-deepseek-v32-even", {{2, 1}, {1, 2}}},
        DeviceCase{"tiny-glm-dsa-even", kTwo, ElementType::kF8E4M3},
        DeviceCase{"tiny-qwen3.5", kTwo}, DeviceCase{"tiny-qwen3-next", kTwo},
        DeviceCase{"tiny-bamba", kTwo}, DeviceCase{"tiny-lfm2-moe", kTwo},
        DeviceCase{"tiny-kimi-linear", kTwo}, DeviceCase{"tiny-falcon-h1-even", {{2, 1}, {1, 2}}},
        DeviceCase{"tiny-nemotron-h-latent-even", kTwo},
        DeviceCase{"tiny-olmo3", {{2, 1}, {3, 1}, {4, 1}}}, DeviceCase{"tiny-olmo2", {{1, 2}}},
        DeviceCase{"tiny-granite", {{2, 1}, {1, 2}}},
        DeviceCase{"tiny-qwen2-moe", {{3, 1}, {1, 2}}}, DeviceCase{"tiny-qwen3-moe-mixed", kTwo},
        DeviceCase{"tiny-llama4-mixed", kThree},
        DeviceCase{"qwen3-modelopt-fp8", kThree, ElementType::kF8E4M3},
        DeviceCase{"qwen3-llmc-fp8-block", kAllCuts, ElementType::kBF16, Rounding::kCheckpoint},
        DeviceCase{"llama4-quark-fp8", kTwo, ElementType::kF8E4M3, Rounding::kCheckpoint},
        DeviceCase{"llama4-modelopt-nvfp4", kThree, ElementType::kBF16, Rounding::kCheckpoint},
        DeviceCase{"qwen3-moe-llmc-nvfp4", kTwo, ElementType::kBF16, Rounding::kCheckpoint},
        DeviceCase{"qwen3-moe-quark-mxfp4", kThree}, DeviceCase{"qwen3-llmc-int8-w8a8", kThree},
        DeviceCase{"tiny-qwen3-w4a16-actorder", kTwo}, DeviceCase{"tiny-qwen3-moe-w4a16", kTwo},
        DeviceCase{"tiny-qwen3-awq", kThree}, DeviceCase{"tiny-qwen3-gptq", kTwo},
        DeviceCase{"qwen3-moe-llmc-nvfp4", kThree, ElementType::kBF16, Rounding::kAuto,
                   ModelOptions::LoadFormat::kDummy},
        DeviceCase{"qwen3-bf16",
                   kThree,
                   ElementType::kBF16,
                   Rounding::kAuto,
                   ModelOptions::LoadFormat::kAuto,
                   {"fp8_per_block", ""}},
        DeviceCase{"qwen3-bf16",
                   kTwo,
                   ElementType::kBF16,
                   Rounding::kAuto,
                   ModelOptions::LoadFormat::kAuto,
                   {"mxfp4", ""}},
        DeviceCase{"qwen3-llmc-fp8-block", kTwo, ElementType::kBF16, Rounding::kAuto,
                   ModelOptions::LoadFormat::kDummy}),
    [](const ::testing::TestParamInfo<DeviceCase>& info) {
      std::string name = fmt::format("{}_{}", info.param.name, info.index);
      std::ranges::replace_if(
          name, [](char c) { return c == '-' || c == '.'; }, '_');
      return name;
    });

// Ranks replay some steps, with or without padding, and run other steps eagerly in between.
void ExpectReplayed(const char* name, const DeviceCut& cut, ElementType kv_type,
                    const EmulatedDeviceOptions& device, bool replays) {
  ModelOptions options = DeviceOptions(kv_type);
  options.max_slices = 4;
  DeviceRunner alone(DataFolder(name), options);
  DeviceRanksRunner ranks(name, options, cut, device);
  Model& model = ranks.runner().model();
  ASSERT_TRUE(model.RecordSteps({.sequences = {1, 3}}, ranks.runner().cache()));
  int64_t replayed = 0;
  const auto both = [&](const std::vector<Runner::Part>& parts) {
    EXPECT_TRUE(alone.runner().RunStep(parts) == ranks.runner().RunStep(parts)) << parts.size();
    EXPECT_EQ(model.num_replayed(), replays ? replayed : 0) << parts.size();
  };
  for (int s = 0; s < 4; ++s)
    both({{s, SomeTokens(2 + 7 * static_cast<size_t>(s), static_cast<uint64_t>(s))}});
  for (const int count : {1, 2, 3, 4, 1, 3}) {
    std::vector<Runner::Part> parts;
    for (int i = 0; i < count; ++i)
      parts.push_back({(i + count) % 4, {(17 * i + 31 * count) % 128}});
    replayed += count <= 3;
    both(parts);
  }
  both({{0, SomeTokens(3, 9)}, {1, {4}}});
  ++replayed;
  both({{0, {1}}, {2, {2}}});
}

TEST(DeviceRanksRecording, HeavyReplayedStepsAreBitEqual) {
  ExpectReplayed("qwen3-bf16", {2, 1}, ElementType::kBF16, testing::kArraysShared, true);
  ExpectReplayed("qwen3-bf16", {4, 1}, ElementType::kBF16, testing::kArraysApart, true);
  ExpectReplayed("qwen3-modelopt-fp8", {3, 1}, ElementType::kF8E4M3, testing::kArraysShared, true);
  ExpectReplayed("tiny-gemma4-experts", {2, 1}, ElementType::kBF16, testing::kArraysShared, true);
}

// If one rank cannot capture a size, all ranks run the steps of this size eagerly, and replay the
// other sizes.
TEST(DeviceRanksRecording, RanksDropASizeTogether) {
  for (const size_t failing : {0, 1}) {
    ModelOptions options = DeviceOptions();
    options.max_slices = 4;
    DeviceRunner alone(DataFolder("qwen3-bf16"), options);
    DeviceRanksRunner ranks("qwen3-bf16", options, {2, 1});
    Model& model = ranks.runner().model();
    ranks.device(failing).FailNextLaunch();
    ASSERT_TRUE(model.RecordSteps({.sequences = {1, 2}, .pads = false, .runs_before = false},
                                  ranks.runner().cache()));
    EXPECT_TRUE(ranks.runner().RunStep({{1, {5}}}) == alone.runner().RunStep({{1, {5}}}));
    EXPECT_EQ(model.num_replayed(), 0) << failing;
    EXPECT_TRUE(ranks.runner().RunStep({{1, {6}}, {2, {7}}}) ==
                alone.runner().RunStep({{1, {6}}, {2, {7}}}));
    EXPECT_EQ(model.num_replayed(), 1) << failing;
  }
}

// If a rank fails before a capture, the other ranks would wait for its kernels, so the group ends.
TEST(DeviceRanksRecording, AFailureBeforeACaptureEndsTheGroup) {
  for (const size_t failing : {0, 1}) {
    DeviceRanksRunner ranks("qwen3-bf16", DeviceOptions(), {2, 1}, {},
                            std::chrono::milliseconds(5000));
    ranks.device(failing).FailNextCopy();
    const Status recorded =
        ranks.runner().model().RecordSteps({.sequences = {1}}, ranks.runner().cache());
    ASSERT_FALSE(recorded);
    EXPECT_EQ(recorded.error().code, ErrorCode::kUnavailable);
    EXPECT_THAT(recorded.error().message, HasSubstr(fmt::format("rank {}: ", failing)));
    EXPECT_FALSE(ranks.runner().model().CheckAlive());
  }
}

TEST(DeviceRanksRecording, WithNcclStepsAreLaunched) {
  ExpectReplayed("qwen3-bf16", {2, 1}, ElementType::kBF16, kByNccl, false);
}

// Arrays with more rows than fit into an exchange are gathered by NCCL; other arrays in the same
// steps are not.
TEST(DeviceRanksRecording, HeavyLongPromptsAreGatheredByNccl) {
  ModelOptions options = DeviceOptions();
  options.max_rows = options.max_logit_rows = options.max_context = 640;
  const auto run = [](Runner& runner) {
    LogitRows rows = runner.RunStep({{0, SomeTokens(600, 3)}})[0];
    for (LogitRows more : {runner.RunStep({{0, {5}}, {1, SomeTokens(4, 2)}})[0],
                           runner.RunStep({{0, {6}}, {1, {7}}})[1]})
      std::move(more.begin(), more.end(), std::back_inserter(rows));
    return rows;
  };
  DeviceRunner alone(DataFolder("qwen3-bf16"), options);
  DeviceRanksRunner ranks("qwen3-bf16", options, {2, 1});
  EXPECT_EQ(RowsUnlike(run(ranks.runner()), run(alone.runner())), 0u);
}

// Experts are computed in parts, so their arrays fit into an exchange for as many rows as other
// arrays do.
TEST(DeviceRanksPlanTest, ExpertsExchangeThePairsOfAsManyRows) {
  program::Program program;
  program.limits = {.rows = 8192, .pairs = 8192};
  program.buffers = {{.name = "joined", .row_bytes = 16},
                     {.name = "pairs", .extent = program::Extent::kPairs, .row_bytes = 8}};
  program.ops = {program::Parts{.rows = 2048, .pairs_each = 4}, program::Gather{.joined = 0},
                 program::Gather{.joined = 1}};
  EXPECT_EQ(ExchangedBytes(program), kMostExchangedRows * 4 * 8);
  program.limits.pairs = 1536;
  EXPECT_EQ(ExchangedBytes(program), 1536 * 8) << "no step has more";
}

// How the sum of a product is split depends on the rows of the whole matrix. Otherwise results
// would depend on the number of ranks. Tests large matrices, which no test checkpoint has.
TEST(DeviceRanksWeightsTest, SumsAreSplitAsThoseOfTheWholeMatrix) {
  const auto config = LoadModelConfig(DataFolder("qwen3-bf16"));
  ASSERT_TRUE(config);
  const auto matrices = [&](const RankPlace& place) {
    DecoderWeights weights;
    const ParameterList list = ListParameters(config->spec, weights, place);
    const std::vector<DataFormat> formats(list.matrices.size(), {.type = ElementType::kBF16});
    const auto layout =
        DeviceWeightLayout::For(ShareOf(config->spec, place).rope_tables, list, formats);
    EXPECT_TRUE(layout) << layout.error().message;
    std::vector<device::Weights> all;
    // A dummy address that nothing reads.
    auto* const base =
        reinterpret_cast<std::byte*>(DevicePool::kAlignment);  // NOLINT(performance-no-int-to-ptr)
    for (size_t i = 0; i < formats.size(); ++i) all.push_back(layout->matrix(i).At(base));
    return all;
  };
  const std::vector<device::Weights> alone = matrices({});
  for (int rank = 0; rank < 2; ++rank) {
    const std::vector<device::Weights> share = matrices({.tensor_rank = rank, .tensor_size = 2});
    ASSERT_EQ(share.size(), alone.size());
    for (size_t i = 0; i < share.size(); ++i) {
      EXPECT_EQ(share[i].whole_n, alone[i].n) << i;
      EXPECT_LT(share[i].n, alone[i].n) << i;
    }
  }
}

using emulated_nccl::Fault;

// Returns the error message of a step; "" if it succeeds.
std::string FailureOf(Runner& runner) {
  try {
    runner.RunAlone({1}, 1);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(DeviceRanksFaultTest, ALostDeviceEndsTheGroupByName) {
  DeviceRanksRunner ranks("qwen3-bf16", DeviceOptions(), {2, 1});
  ASSERT_EQ(FailureOf(ranks.runner()), "");
  EXPECT_TRUE(ranks.runner().model().CheckAlive());
  ranks.device(1).Lose();
  EXPECT_THAT(FailureOf(ranks.runner()), HasSubstr("rank 1: the emulated device was lost"));
  const Status alive = ranks.runner().model().CheckAlive();
  ASSERT_FALSE(alive);
  EXPECT_EQ(alive.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(alive.error().message, HasSubstr("rank 1: "));
  EXPECT_THAT(FailureOf(ranks.runner()), HasSubstr("rank 1: ")) << "it stays so";
}

// A single device can continue after a failed step. In a group, the state of the other ranks is
// unknown, so all ranks end.
TEST(DeviceRanksFaultTest, HeavyAFailedLaunchOfOneEndsAll) {
  DeviceRanksRunner ranks("qwen3-bf16", DeviceOptions(), {2, 2});
  ASSERT_EQ(FailureOf(ranks.runner()), "");
  ranks.device(3).FailNextLaunch();
  EXPECT_THAT(FailureOf(ranks.runner()), HasSubstr("rank 3: "));
  EXPECT_FALSE(ranks.runner().model().CheckAlive());
}

// If a rank's launches return only after their kernels have run, as with a full launch queue, the
// rank cannot check for failures itself. In this test, the other rank runs no work before all ranks
// have reported their launches. When it gives up, it ends the kernel in which the first rank waits.
TEST(DeviceRanksFaultTest, HeavyARankStuckInALaunchIsFreed) {
  for (const int stuck : {0, 1}) {
    DeviceRanksRunner ranks("qwen3-bf16", DeviceOptions(), {2, 1}, {},
                            std::chrono::milliseconds(2000), {}, stuck);
    EXPECT_THAT(FailureOf(ranks.runner()), HasSubstr("rank ")) << stuck;
    EXPECT_FALSE(ranks.runner().model().CheckAlive());
  }
}

// One device hangs, or one of its launches has failed. The kernels of the other ranks wait for this
// device's flags until the deadline ends them.
TEST(DeviceRanksFaultTest, HeavyAHangingDeviceIsToldWithinTheDeadline) {
  for (const int size : {2, 4}) {
    DeviceRanksRunner ranks("qwen3-bf16", DeviceOptions(), {size, 1}, {},
                            std::chrono::milliseconds(2000));
    ASSERT_EQ(FailureOf(ranks.runner()), "");
    ranks.device(static_cast<size_t>(size) - 1).Hang();
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(
        FailureOf(ranks.runner()),
        HasSubstr("the devices did not end a step that all ranks had sent them within 2 s"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
    EXPECT_FALSE(ranks.runner().model().CheckAlive());
  }
}

TEST(DeviceRanksFaultTest, HeavyAHangingExchangeIsToldWithinTheDeadline) {
  DeviceRanksRunner ranks("qwen3-bf16", DeviceOptions(), {2, 1}, kByNccl,
                          std::chrono::milliseconds(3000));
  emulated_nccl::Inject(Fault::kHang, 1);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(FailureOf(ranks.runner()),
              HasSubstr("the devices did not end a step that all ranks had sent them within 3 s"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_FALSE(ranks.runner().model().CheckAlive());
}

TEST(DeviceRanksFaultTest, HeavyAnAsynchronousErrorIsTold) {
  DeviceRanksRunner ranks("qwen3-bf16", DeviceOptions(), {2, 1}, kByNccl);
  emulated_nccl::Inject(Fault::kAsyncError, 1);
  EXPECT_THAT(FailureOf(ranks.runner()), HasSubstr("NCCL failed: remote process exited"));
  EXPECT_FALSE(ranks.runner().model().CheckAlive());
}

TEST(DeviceRanksFaultTest, ADeviceTooSmallForItsShareIsNamed) {
  const auto config = LoadModelConfig(DataFolder("qwen3-bf16"));
  const ModelOptions options = DeviceOptions();
  EmulatedDevice large, small({.total_bytes = 4096});
  ParallelOptions parallel;
  parallel.tensor_size = 2;
  parallel.threads.assign(2, {});
  parallel.kv_groups = KvGroups::Uniform(config->num_hidden_layers);
  parallel.num_blocks = 8;
  parallel.devices = {&large, &small};
  ThreadPool pool(1);
  const auto share = LoadParallelModel(pool, DataFolder("qwen3-bf16"), *config, options, parallel);
  ASSERT_FALSE(share);
  EXPECT_EQ(share.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(share.error().message, HasSubstr("rank 1: weights, workspace and KV cache: "));
}

// The deadline applies only to steps: a rank may load for a longer time than another.
TEST(DeviceRanksLoadTest, HeavyARankMayLoadForLongerThanTheDeadline) {
  const auto config = LoadModelConfig(DataFolder("qwen3-bf16"));
  const ModelOptions options = DeviceOptions();
  EmulatedDevice first, second;
  ParallelOptions parallel;
  parallel.tensor_size = 2;
  parallel.threads.assign(2, {});
  parallel.kv_groups = KvGroups::Uniform(config->num_hidden_layers);
  parallel.num_blocks = 8;
  parallel.devices = {&first, &second};
  parallel.deadline = std::chrono::milliseconds(1000);
  ThreadPool pool(1);
  bool has_waited = false;
  // Waits when the reported bytes reach the total. At the latest, this happens in the rank that
  // loads the last weights: at first, the total does not include its share.
  const auto wait_at_the_end = [&](int64_t done, int64_t total) {
    if (done < total) return;
    has_waited = true;
    std::this_thread::sleep_for(3 * parallel.deadline);
  };
  const auto share = LoadParallelModel(pool, DataFolder("qwen3-bf16"), *config, options, parallel,
                                       wait_at_the_end);
  EXPECT_TRUE(has_waited);
  EXPECT_TRUE(share) << share.error().message;
}

TEST(DeviceRanksPlanTest, RanksThatExchangeByNcclHaveNoMemoryForPeers) {
  const auto config = LoadModelConfig(DataFolder("qwen3-bf16"));
  ModelOptions options = DeviceOptions();
  EmulatedDevice device, other, apart(kByNccl);
  const auto with = PlanDeviceRanks(*config, options, device.info(), 2, 1);
  options.exchanges_by_nccl = true;
  const auto without = PlanDeviceRanks(*config, options, device.info(), 2, 1);
  ASSERT_TRUE(with && without);
  EXPECT_LT(without->workspace_bytes, with->workspace_bytes);
  DeviceRanksRunner ranks("qwen3-bf16", options, {2, 1});
  DeviceRunner alone(DataFolder("qwen3-bf16"), DeviceOptions());
  EXPECT_TRUE(ranks.runner().RunAlone({5, 6}, 2) == alone.runner().RunAlone({5, 6}, 2));
  EXPECT_TRUE(LetAddressEachOther(std::vector<Device*>{&device, &other}));
  EXPECT_FALSE(LetAddressEachOther(std::vector<Device*>{&device, &apart}));
}

TEST(DeviceRanksPlanTest, ARankHoldsLess) {
  const auto config = LoadModelConfig(DataFolder("qwen3-bf16"));
  const EmulatedDevice device;
  const auto alone = PlanDeviceModel(*config, DeviceOptions(), device.info());
  const auto most = PlanDeviceRanks(*config, DeviceOptions(), device.info(), 2, 1);
  ASSERT_TRUE(most) << most.error().message;
  EXPECT_LT(most->weight_bytes, alone->weight_bytes * 6 / 10);
  EXPECT_EQ(most->kv_bytes_per_block * 2, alone->kv_bytes_per_block);
  for (int rank = 0; rank < 2; ++rank) {
    const auto own =
        PlanDeviceModel(*config, DeviceOptions(), device.info(), RankPlace::Of(rank, 2, 1));
    ASSERT_TRUE(own);
    EXPECT_LE(own->weight_bytes, most->weight_bytes);
    EXPECT_LE(own->workspace_bytes, most->workspace_bytes);
  }
  const auto layers = LoadModelConfig(DataFolder("tiny-gemma4-shared"));
  const auto embedded = PlanDeviceRanks(*layers, DeviceOptions(), device.info(), 2, 1);
  ASSERT_FALSE(embedded);
  EXPECT_THAT(embedded.error().message, HasSubstr("per-layer embeddings"));
  auto shared = *layers;
  shared.spec.layer_embeddings.width = 0;
  EXPECT_TRUE(PlanDeviceRanks(shared, DeviceOptions(), device.info(), 2, 1));
  const auto staged = PlanDeviceRanks(shared, DeviceOptions(), device.info(), 1, 2);
  ASSERT_FALSE(staged);
  EXPECT_THAT(staged.error().message, HasSubstr("--pipeline-parallel-size 1"));
  const auto refused = PlanDeviceRanks(*config, DeviceOptions(), device.info(), 1, 99);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("pipeline_parallel_size 99"));
}

}  // namespace
}  // namespace sluice
