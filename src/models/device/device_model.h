// Models whose weights, activations and KV cache live on a device.
#pragma once

#include <filesystem>
#include <memory>

#include "base/result.h"
#include "base/thread_pool.h"
#include "device/device.h"
#include "models/model.h"

namespace sluice {

class DevicePool;

// What LoadDeviceModel will take from the pool, from config.json alone: weight_bytes and
// workspace_bytes (activations, the inputs of a step, logits) to the byte where the checkpoint
// stores what its configuration says. Page-locked memory of the host is not counted. A block of
// the cache takes the share of kv_bytes_per_block that one group's layers have (KvCache::Wrap).
//
// kUnsupported names what no kernel of devices computes: `dtype` other than BF16, `kv_cache_dtype`
// other than BF16 and FP8, shapes that kernels do not take, an architecture that is not in the
// registry.
Result<ModelMemory> PlanDeviceModel(const ModelConfig& config, const ModelOptions& options,
                                    const DeviceInfo& device);

// As LoadModel, to memory of `pool`. Where the checkpoint rounds inputs to E4M3 by tensor or by
// row and the device multiplies E4M3 (compute capability 8.9 and later), kAuto and kCheckpoint
// round them so; all other inputs are BF16. `threads` help to prepare the weights and are not used
// afterwards. Forward gets a cache of KvCache::Wrap over memory of the same device, and throws
// std::runtime_error with what the device reports when a step fails. The device and the pool's
// memory must outlive the model.
Result<std::unique_ptr<Model>> LoadDeviceModel(Device& device, DevicePool& pool,
                                               ThreadPool& threads,
                                               const std::filesystem::path& folder,
                                               ModelConfig config, const ModelOptions& options,
                                               const LoadProgress& progress = {});

}  // namespace sluice
