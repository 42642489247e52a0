// Plans and loads encoders on a device.
#pragma once

#include <filesystem>
#include <memory>

#include "device/device.h"
#include "device/device_pool.h"
#include "models/model.h"

namespace sluice {

// Like PlanDeviceModel, for encoders. The cache contains keys and values of one layer, for a single
// step. kUnsupported as in PlanDeviceModel.
Result<ModelMemory> PlanDeviceEncoder(const ModelConfig& config, const ModelOptions& options,
                                      const DeviceInfo& device);

// Like LoadDeviceModel, for encoders.
Result<std::unique_ptr<Model>> LoadDeviceEncoder(Device& device, DevicePool& pool,
                                                 ThreadPool& threads,
                                                 const std::filesystem::path& folder,
                                                 ModelConfig config, const ModelOptions& options,
                                                 const LoadProgress& progress);

}  // namespace sluice
