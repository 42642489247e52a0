// For tests: a model over several emulated devices.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "models/device/device_model_testing.h"
#include "models/parallel_model.h"

namespace sluice::testing {

struct DeviceCut {
  int tensor_size = 1;
  int num_stages = 1;
};

class DeviceRanksRunner {
 public:
  // `at_once`: a rank whose device runs work as soon as it is enqueued; -1: all devices follow the
  // options.
  DeviceRanksRunner(const char* name, const ModelOptions& given, const DeviceCut& cut,
                    const EmulatedDeviceOptions& device_options = {},
                    std::chrono::milliseconds deadline = std::chrono::minutes(2),
                    const LoadQuantization& quantization = {}, int at_once = -1) {
    const auto config = LoadModelConfig(DataFolder(name), {}, quantization);
    EXPECT_TRUE(config) << name;
    ModelOptions options = given;
    if (config->spec.KeepsStates() && options.state_slots == 0)
      options.state_slots = options.max_slices;
    ParallelOptions parallel;
    parallel.tensor_size = cut.tensor_size;
    parallel.num_stages = cut.num_stages;
    parallel.threads.assign(static_cast<size_t>(parallel.num_ranks()), {});
    parallel.kv_groups = KvGroups::Uniform(config->spec);
    parallel.num_blocks = Runner::BlocksPerSequence(options) * options.max_slices;
    parallel.deadline = deadline;
    for (int rank = 0; rank < parallel.num_ranks(); ++rank) {
      EmulatedDeviceOptions own = device_options;
      own.runs_at_once = own.runs_at_once || rank == at_once;
      devices_.push_back(std::make_unique<EmulatedDevice>(own));
      parallel.devices.push_back(devices_.back().get());
    }
    ThreadPool pool(1);
    auto share = LoadParallelModel(pool, DataFolder(name), *config, options, parallel);
    EXPECT_TRUE(share) << name << ": " << (share ? "" : share.error().message);
    if (!share) return;
    runner_ =
        std::make_unique<Runner>(std::move(share->model), std::move(share->cache), options, 1);
  }

  Runner& runner() { return *runner_; }
  EmulatedDevice& device(size_t rank) { return *devices_[rank]; }

 private:
  std::vector<std::unique_ptr<EmulatedDevice>> devices_;
  std::unique_ptr<Runner> runner_;
};

}  // namespace sluice::testing
