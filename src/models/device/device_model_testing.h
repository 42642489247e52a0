// For tests: a model on the device that SLUICE_TESTED_DEVICE names, usually the emulated one.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "device/device_pool.h"
#include "device/device_testing.h"
#include "device/emulated_device.h"
#include "models/device/device_model.h"
#include "models/kv_layout.h"
#include "models/model_testing.h"

namespace sluice::testing {

inline ModelOptions DeviceOptions(ElementType kv_type = ElementType::kBF16) {
  ModelOptions options = SmallOptions(ElementType::kBF16, kv_type);
  options.max_rows = options.max_logit_rows = options.max_context = 96;
  options.max_slices = 3;
  return options;
}

// Options that find the most errors: they detect kernels that write outside their arrays.
constexpr EmulatedDeviceOptions kArraysApart = {.keeps_arrays_apart = true};
// Options with which arrays share memory, as on a real GPU.
constexpr EmulatedDeviceOptions kArraysShared = {};

// Runs a model on a device that has exactly the planned memory.
class DeviceRunner {
 public:
  DeviceRunner(const std::filesystem::path& folder, const ModelOptions& given,
               const EmulatedDeviceOptions& device_options = kArraysApart,
               const LoadQuantization& quantization = {}, const HeadSpec& head = {})
      : device_(OpenTestedDevice(device_options)) {
    auto config = LoadModelConfig(folder, {}, quantization);
    EXPECT_TRUE(config) << (config ? "" : config.error().message);
    config->spec.head = head;
    ModelOptions options = given;
    if (config->spec.KeepsStates() && options.state_slots == 0)
      options.state_slots = options.max_slices;
    auto memory = PlanDeviceModel(*config, options, device_->info());
    EXPECT_TRUE(memory) << (memory ? "" : memory.error().message);
    memory_ = *memory;
    const int64_t blocks = Runner::BlocksPerSequence(options) * options.max_slices;
    const int64_t kv_bytes = DevicePool::Padded(memory_.kv_bytes_per_block * blocks);
    const int64_t model_bytes = memory_.weight_bytes + memory_.workspace_bytes + memory_.lora_bytes;
    const int64_t state_bytes =
        DevicePool::Padded(memory_.state_bytes_per_slot * options.state_slots);
    auto pool = DevicePool::Allocate(*device_, model_bytes + kv_bytes + state_bytes, "a model");
    EXPECT_TRUE(pool) << (pool ? "" : pool.error().message);
    pool_ = std::make_unique<DevicePool>(*std::move(pool));
    ThreadPool threads(2);
    auto model = LoadDeviceModel(*device_, *pool_, threads, folder, *config, options);
    EXPECT_TRUE(model) << (model ? "" : model.error().message);
    EXPECT_EQ(pool_->used_bytes(), model_bytes);
    const auto kv = pool_->Take(kv_bytes, "the KV cache");
    EXPECT_TRUE(kv) << (kv ? "" : kv.error().message);
    const auto states = pool_->Take(state_bytes, "the states of sequences");
    EXPECT_TRUE(states) << (states ? "" : states.error().message);
    EXPECT_EQ(pool_->used_bytes(), pool_->size_bytes());
    kv_memory_ = *kv;
    // A single group contains all layers, because the runner gives each sequence one table.
    auto cache = std::make_unique<KvCache>(KvCache::Wrap(
        KvLayoutOf(config->spec, options), KvGroups::Uniform(config->spec), blocks, *kv));
    cache->WrapStates(StateLayout::For(config->spec), options.state_slots, *states);
    runner_ = std::make_unique<Runner>(*std::move(model), std::move(cache), options, 1);
  }

  Runner& runner() { return *runner_; }
  // REQUIRES: the device is the emulated one.
  EmulatedDevice& device() { return dynamic_cast<EmulatedDevice&>(*device_); }
  const ModelMemory& memory() const { return memory_; }
  void* kv_memory() { return kv_memory_; }

 private:
  std::unique_ptr<Device> device_;
  ModelMemory memory_;
  std::unique_ptr<DevicePool> pool_;
  void* kv_memory_ = nullptr;
  std::unique_ptr<Runner> runner_;
};

// Returns the name of a test: that of its checkpoint.
inline std::string CheckpointName(const ::testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace sluice::testing
