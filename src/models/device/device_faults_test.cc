// Tests steps and loads that fail midway on the emulated device. They must leave nothing behind,
// and the next step or load must work.
#include <new>
#include <numeric>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/device/device_model_testing.h"

namespace sluice {
namespace {

using testing::DataFolder;
using testing::DeviceOptions;
using testing::DeviceRunner;
using ::testing::HasSubstr;
using testing::LogitRows;
using testing::Runner;
using testing::SomeTokens;

TEST(DeviceFaultsTest, AFaultFailsItsStepAndTheNextOneWorks) {
  DeviceRunner device(DataFolder("qwen3-bf16"), DeviceOptions());
  Runner& runner = device.runner();
  const std::vector<int32_t> tokens = SomeTokens(5, 1);
  const LogitRows expected = runner.RunAlone(tokens, tokens.size());
  device.device().FailNextLaunch();
  EXPECT_THROW(runner.RunAlone(tokens, tokens.size()), std::runtime_error);
  EXPECT_TRUE(runner.RunAlone(tokens, tokens.size()) == expected);
  device.device().FailNextCopy();
  EXPECT_THROW(runner.RunAlone(tokens, tokens.size()), std::runtime_error);
  EXPECT_TRUE(runner.RunAlone(tokens, tokens.size()) == expected);
  device.device().Lose();
  EXPECT_THROW(runner.RunAlone(tokens, tokens.size()), std::runtime_error);
  EXPECT_THROW(runner.RunAlone(tokens, tokens.size()), std::runtime_error);
}

// A stream that, after `copies_left` copies, throws instead of enqueueing a copy to the host.
class ThrowingStream final : public DeviceStream {
 public:
  ThrowingStream(std::unique_ptr<DeviceStream> stream, int* copies_left)
      : stream_(std::move(stream)), copies_left_(copies_left) {}
  void CopyToDevice(void* to, const void* host, int64_t bytes) override {
    stream_->CopyToDevice(to, host, bytes);
  }
  void CopyToHost(void* host, const void* from, int64_t bytes) override {
    if ((*copies_left_)-- == 0) throw std::bad_alloc();
    stream_->CopyToHost(host, from, bytes);
  }
  void CopyOnDevice(void* to, const void* from, int64_t bytes) override {
    stream_->CopyOnDevice(to, from, bytes);
  }
  void Fill(void* to, uint8_t byte, int64_t bytes) override { stream_->Fill(to, byte, bytes); }
  void Record(DeviceEvent& event) override { stream_->Record(event); }
  void WaitFor(DeviceEvent& event) override { stream_->WaitFor(event); }
  Status Synchronize() override { return stream_->Synchronize(); }
  bool IsIdle() override { return stream_->IsIdle(); }
  StreamHandle handle() override { return stream_->handle(); }

 private:
  std::unique_ptr<DeviceStream> stream_;
  int* copies_left_;
};

class ThrowingDevice final : public Device {
 public:
  const DeviceInfo& info() const override { return device_.info(); }
  Status CheckAlive() const override { return device_.CheckAlive(); }
  Result<int64_t> FreeBytes() override { return device_.FreeBytes(); }
  Result<DeviceBuffer> Allocate(int64_t bytes, const char* what) override {
    return device_.Allocate(bytes, what);
  }
  Result<DeviceBuffer> AllocatePinned(int64_t bytes, const char* what) override {
    return device_.AllocatePinned(bytes, what);
  }
  bool Pin(void* data, int64_t bytes) override { return device_.Pin(data, bytes); }
  void Unpin(void* data) override { device_.Unpin(data); }
  Result<std::unique_ptr<DeviceStream>> CreateStream() override {
    ASSIGN_OR_RETURN(auto stream, device_.CreateStream());
    return std::make_unique<ThrowingStream>(std::move(stream), &copies_left);
  }
  Result<std::unique_ptr<DeviceEvent>> CreateEvent() override { return device_.CreateEvent(); }

  int copies_left = -1;  // below 0: never fails

 protected:
  void Free(void* /*data*/, bool /*is_host*/) override {}  // the buffers belong to the inner device

 private:
  EmulatedDevice device_;
};

TEST(DeviceFaultsTest, AStepThatThrowsHalfwayTouchesNothingAfterwards) {
  const auto folder = DataFolder("qwen3-bf16");
  const ModelOptions options = DeviceOptions();
  const auto config = LoadModelConfig(folder);
  ThrowingDevice device;
  const auto plan = PlanDeviceModel(*config, options, device.info());
  ASSERT_TRUE(plan);
  const int64_t blocks = Runner::BlocksPerSequence(options);
  const int64_t kv_bytes = DevicePool::Padded(plan->kv_bytes_per_block * blocks);
  auto pool =
      DevicePool::Allocate(device, plan->weight_bytes + plan->workspace_bytes + kv_bytes, "it");
  ASSERT_TRUE(pool);
  ThreadPool threads(2);
  const auto model = LoadDeviceModel(device, *pool, threads, folder, *config, options);
  ASSERT_TRUE(model);
  KvCache cache =
      KvCache::Wrap(KvLayoutOf(config->spec, options), KvGroups::Uniform(config->num_hidden_layers),
                    blocks, *pool->Take(kv_bytes, "the KV cache"));
  const std::vector<int32_t> tokens = SomeTokens(5, 4), rows = {0, 2, 4};
  std::vector<int32_t> positions(5), table(static_cast<size_t>(blocks));
  std::iota(positions.begin(), positions.end(), 0);
  std::iota(table.begin(), table.end(), 0);
  const std::vector<kernels::AttentionSlice> slices = {{0, 5, 0, table.data()}};
  // Logits of the first and the last row go to the host; the middle row's token is drawn.
  const auto step = [&](std::vector<float>& logits) {
    std::vector<TokenDraw> draws(rows.size());
    draws[1].is_wanted = true;
    draws[1].settings.top_p = 1;
    (*model)->Forward(threads, {tokens, positions, slices, rows, 1, draws}, cache, logits.data());
  };
  std::vector<float> first(rows.size() * static_cast<size_t>(config->vocab_size), -1);
  std::vector<float> second = first;
  const std::vector<float> untouched = first;
  device.copies_left = 2;
  EXPECT_THROW(step(first), std::bad_alloc);
  EXPECT_LT(device.copies_left, 0);
  first = untouched;  // the failed step must not write to it later
  step(second);
  EXPECT_TRUE(first == untouched);
  EXPECT_FALSE(second == untouched);
}

// The emulated device runs copies late and detects copies whose memory was freed. So an error must
// not leave a copy enqueued.
TEST(DeviceFaultsTest, AFaultWhileLoadingIsToldAndTheNextLoadWorks) {
  const auto config = LoadModelConfig(DataFolder("qwen3-modelopt-fp8"));
  ASSERT_TRUE(config);
  EmulatedDevice device;
  ThreadPool threads(2);
  const auto load = [&](ModelOptions::LoadFormat format, const LoadProgress& progress) {
    ModelOptions options = DeviceOptions();
    options.load_format = format;
    const auto memory = PlanDeviceModel(*config, options, device.info());
    EXPECT_TRUE(memory);
    auto pool = DevicePool::Allocate(device, memory->weight_bytes + memory->workspace_bytes, "it");
    EXPECT_TRUE(pool);
    const auto model = LoadDeviceModel(device, *pool, threads, DataFolder("qwen3-modelopt-fp8"),
                                       *config, options, progress);
    return model ? std::string() : model.error().message;
  };
  for (const auto format : {ModelOptions::LoadFormat::kAuto, ModelOptions::LoadFormat::kDummy}) {
    for (const int64_t share : {0, 50, 99}) {
      // A copy fails after `share` percent of the weights. With random weights (kDummy), only
      // vectors are copied.
      bool is_hit = false;
      const std::string message = load(format, [&](int64_t done, int64_t total) {
        if (is_hit || done * 100 < total * share) return;
        is_hit = true;
        device.FailNextCopy();
      });
      EXPECT_TRUE(is_hit);
      EXPECT_THAT(message, HasSubstr("an injected fault"));
      EXPECT_EQ(load(format, {}), "");
      EXPECT_EQ(*device.FreeBytes(), device.info().total_bytes);
    }
  }
  bool is_lost = false;
  const std::string message =
      load(ModelOptions::LoadFormat::kAuto, [&](int64_t done, int64_t total) {
        if (!std::exchange(is_lost, is_lost || done * 2 > total) && is_lost) device.Lose();
      });
  EXPECT_THAT(message, HasSubstr("the emulated device was lost"));
}

}  // namespace
}  // namespace sluice
