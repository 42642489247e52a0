// The body of an image tower on a device: its layers and the steps after them. The host embeds the
// patches of an image, which is less than a hundredth of the work, and sends their rows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "device/device.h"
#include "device/device_pool.h"
#include "kernels/cuda/device_linear.h"
#include "models/device/device_executor.h"
#include "models/device/device_tower_step.h"
#include "models/kv_cache.h"
#include "models/tower/tower_spec.h"
#include "models/tower/tower_weights.h"

namespace sluice {

// Memory of the body on a device.
struct DeviceTowerMemory {
  int64_t weight_bytes = 0;
  int64_t workspace_bytes = 0;  // includes the keys and values of an image
};

// Sizes of a tower's steps.
struct TowerSizes {
  ModelOptions options;    // only max_rows, max_slices, max_context and max_logit_rows are set
  int64_t num_blocks = 0;  // number of blocks of the tower's cache of keys and values
};

// Ownership: the device, its stream and its pool outlive the tower. Thread safety: one thread at a
// time.
class DeviceTower {
 public:
  // kUnsupported names a part that no kernel computes.
  static Result<DeviceTowerMemory> Plan(const TowerSpec& spec, const QuantizationScheme& scheme,
                                        const TowerSizes& sizes, const DeviceInfo& device);

  // Takes from the pool the memory that Plan has computed. `checkpoint`: null for random weights.
  static Result<std::unique_ptr<DeviceTower>> Load(Device& device, DevicePool& pool,
                                                   DeviceStream& stream, ThreadPool& threads,
                                                   const Checkpoint* checkpoint,
                                                   const TowerSpec& spec,
                                                   const QuantizationScheme& scheme,
                                                   const TowerSizes& sizes);

  // Page-locked host memory of the embedded patches, F32 [max_rows, hidden].
  float* rows() const { return rows_.As<float>(); }

  // Computes the body for the first rows of `rows()`: as many as `input` has positions. Result row
  // i goes to image_rows + targets[i] * stride on the device; -1: it is dropped. Returns when the
  // device has finished. Throws if the device fails.
  void Run(const StepInput& input, std::span<const int32_t> targets, float* image_rows,
           int64_t stride);
  // Copies a vector to one row of the image rows.
  void Put(std::span<const float> values, float* row);

 private:
  struct Parts {
    DeviceStream& stream;
    std::unique_ptr<device::DeviceLinear> linear;
    std::unique_ptr<DeviceExecutor> executor;
    DeviceTowerStep inputs;
    KvCache cache;
    DeviceBuffer rows;
  };
  DeviceTower(const TowerSpec& spec, Parts parts);

  int64_t hidden_;
  DeviceStream& stream_;
  std::unique_ptr<device::DeviceLinear> linear_;
  std::unique_ptr<DeviceExecutor> executor_;
  DeviceTowerStep inputs_;
  KvCache cache_;
  DeviceBuffer rows_;
};

// These functions return the parameters in `list` that belong to the tower's body, or to its front.
// The targets of `list` are members of `weights`.
ParameterList TowerBodyParameters(ParameterList list, const TowerWeights& weights);
ParameterList TowerFrontParameters(ParameterList list, const TowerWeights& weights);

// The groups of a tower's cache: one for the whole image and, if the tower has windows, one for the
// windows, which uses the same memory.
KvGroups TowerGroups(const TowerSpec& spec);

}  // namespace sluice
