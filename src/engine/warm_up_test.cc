#include "engine/warm_up.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <stdexcept>

#include <gmock/gmock.h>

#include "base/source_path_testing.h"
#include "device/device_pool.h"
#include "device/emulated_device.h"
#include "engine/engine_testing.h"
#include "models/device/device_model.h"

namespace sluice {
namespace {

constexpr int kBlockSize = 4;

// Records the steps that it computes.
class RecordingModel final : public Model {
 public:
  explicit RecordingModel(bool draws) : Model(testing::FakeModel::Config()), draws_(draws) {}

  bool draws_tokens() const override { return draws_; }
  void Forward(ThreadPool&, const StepInput& input, KvCache& cache, float*) override {
    const auto rows = static_cast<int64_t>(input.tokens.size());
    const auto slices = input.SlicesOf(0);
    EXPECT_EQ(static_cast<int64_t>(input.slices.size()),
              input.num_groups * static_cast<int64_t>(slices.size()));
    for (int64_t group = 0; group < input.num_groups; ++group) {
      for (const kernels::AttentionSlice& slice : input.SlicesOf(group)) {
        const int32_t end = slice.context + slice.num_tokens;
        longest = std::max<int64_t>(longest, end);
        for (int32_t block = 0; block < (end + kBlockSize - 1) / kBlockSize; ++block)
          EXPECT_TRUE(slice.block_table[block] >= 0 &&
                      slice.block_table[block] < cache.num_blocks());
      }
    }
    EXPECT_EQ(input.logit_rows.size(), slices.size());
    EXPECT_EQ(input.draws.empty() || input.draws.size() == slices.size(), true);
    if (!input.draws.empty()) ++num_drawing;
    all_rows.insert(rows);
    all_slices.insert(static_cast<int64_t>(slices.size()));
    if (rows == fails_at) throw std::runtime_error("launching kernel LinearF8: out of resources");
  }

  int64_t fails_at = -1;
  int64_t longest = 0, num_drawing = 0;
  std::set<int64_t> all_rows, all_slices;

 private:
  bool draws_;
};

KvCache CacheOf(int groups) {
  kernels::KvLayout layout;
  layout.num_kv_heads = 1;
  layout.head_dim = 32;
  layout.block_size = kBlockSize;
  KvGroups all = KvGroups::Uniform(groups);
  all.spans.assign(static_cast<size_t>(groups), {});
  for (int i = 0; i < groups; ++i) all.places[static_cast<size_t>(i)] = {i, 0};
  return *KvCache::Allocate(layout, all, 3);
}

TEST(WarmUp, RunsStepsOfAllKindsWithinTheLimits) {
  RecordingModel model(/*draws=*/true);
  ThreadPool pool(1);
  KvCache cache = CacheOf(2);
  ASSERT_TRUE(WarmUp(model, pool, cache, {.max_rows = 256, .max_slices = 64, .max_context = 500}));
  EXPECT_THAT(model.all_rows, ::testing::IsSupersetOf({1, 2, 17, 33, 64, 256}));
  EXPECT_EQ(*model.all_rows.rbegin(), 256);
  EXPECT_EQ(*model.all_slices.rbegin(), 64);
  EXPECT_EQ(model.longest, 500);
  EXPECT_GT(model.num_drawing, 0);
}

TEST(WarmUp, TheSmallestLimitsAreKept) {
  RecordingModel model(/*draws=*/false);
  ThreadPool pool(1);
  KvCache cache = CacheOf(1);
  ASSERT_TRUE(WarmUp(model, pool, cache, {.max_rows = 1, .max_slices = 1, .max_context = 1}));
  EXPECT_EQ(model.all_rows, std::set<int64_t>{1});
  EXPECT_EQ(model.longest, 1);
  EXPECT_EQ(model.num_drawing, 0);
}

class WarmUpOnADevice : public ::testing::TestWithParam<const char*> {};

// A model with several cache groups, experts and FP8 inputs, and an encoder. "Heavy" in the name
// excludes it from the thread sanitizer, which cannot follow the emulator's switches of stacks.
TEST_P(WarmUpOnADevice, HeavyRuns) {
  const std::filesystem::path folder =
      std::filesystem::path(SourcePath("tests/data/checkpoints")) / GetParam();
  const auto config = LoadModelConfig(folder);
  ASSERT_TRUE(config) << config.error().message;
  ModelOptions options;
  options.load_format = ModelOptions::LoadFormat::kDummy;
  options.max_rows = 70;
  options.max_slices = options.max_logit_rows = 64;
  options.max_context = 300;
  EmulatedDevice device;
  const auto memory = PlanDeviceModel(*config, options, device.info());
  ASSERT_TRUE(memory) << memory.error().message;
  constexpr int64_t kBlocks = 2;
  const int64_t kv_bytes = DevicePool::Padded(memory->kv_bytes_per_block * kBlocks);
  auto pool = DevicePool::Allocate(
      device, memory->weight_bytes + memory->workspace_bytes + kv_bytes, "a model");
  ASSERT_TRUE(pool) << pool.error().message;
  ThreadPool threads(1);
  const auto model = LoadDeviceModel(device, *pool, threads, folder, *config, options);
  ASSERT_TRUE(model) << model.error().message;
  kernels::KvLayout layout;
  layout.num_kv_heads = static_cast<int>(config->num_key_value_heads);
  layout.head_dim = static_cast<int>(config->head_dim);
  layout.block_size = options.block_size;
  layout.type = options.kv_type;
  KvCache cache =
      KvCache::Wrap(layout, memory->kv_groups, kBlocks, *pool->Take(kv_bytes, "the KV cache"));
  const WarmUpLimits limits{.max_rows = 70, .max_context = 300};
  const Status status = WarmUp(**model, threads, cache, limits);
  EXPECT_TRUE(status) << status.error().message;
  device.FailNextLaunch();
  EXPECT_FALSE(WarmUp(**model, threads, cache, limits));
}

INSTANTIATE_TEST_SUITE_P(Models, WarmUpOnADevice,
                         ::testing::Values("llama4-quark-fp8", "tiny-modernbert"),
                         [](const ::testing::TestParamInfo<const char*>& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(WarmUp, AStepThatFailsIsToldAtStart) {
  RecordingModel model(/*draws=*/true);
  model.fails_at = 33;
  ThreadPool pool(1);
  KvCache cache = CacheOf(1);
  const Status status = WarmUp(model, pool, cache, {});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInternal);
  EXPECT_THAT(status.error().message,
              ::testing::AllOf(::testing::HasSubstr("33 sequences and 33 tokens"),
                               ::testing::HasSubstr("launching kernel LinearF8")));
}

}  // namespace
}  // namespace sluice
