// Models whose weights, activations and KV cache live on a device.
#pragma once

#include <filesystem>
#include <memory>

#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "device/device.h"
#include "models/model.h"
#include "models/shard.h"
#include "parallel/device_communicator.h"

namespace sluice {

class DevicePool;

// What LoadDeviceModel, or LoadDeviceShare for the rank at `place`, will take from the pool, from
// config.json alone: weight_bytes, lora_bytes and workspace_bytes (activations, the inputs of a
// step, logits) to the byte where the checkpoint stores what its configuration says. Page-locked
// memory of the host is not counted. Besides, graph_bytes (GraphBytes). A block of the cache takes
// the share of kv_bytes_per_block that one group's layers have (KvCache::Wrap).
//
// kUnsupported names what no kernel of devices computes: `dtype` other than BF16, `kv_cache_dtype`
// other than BF16 and FP8, shapes that kernels do not take, an architecture that is not in the
// registry.
Result<ModelMemory> PlanDeviceModel(const ModelConfig& config, const ModelOptions& options,
                                    const DeviceInfo& device, const RankPlace& place = {});

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

// A rank of a group whose ranks have a device each. `group` is made over `stream`; null where the
// rank is alone.
struct DeviceRank {
  RankPlace place;
  std::unique_ptr<DeviceStream> stream;
  std::unique_ptr<DeviceCommunicator> group;
};

// The share of the rank, from a checkpoint of OpenChecked (null: random weights), which several
// ranks may read at the same time. Of it and its cache, which has the heads and layers of the
// share, what DecoderModel says of ranks.
Result<std::unique_ptr<Model>> LoadDeviceShare(Device& device, DevicePool& pool,
                                               ThreadPool& threads, const Checkpoint* checkpoint,
                                               ModelConfig config, const ModelOptions& options,
                                               DeviceRank rank, const LoadProgress& progress = {});

}  // namespace sluice
