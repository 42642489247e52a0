// Models with weights, activations and KV cache on a device.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "device/device.h"
#include "models/device/device_weights.h"
#include "models/model.h"
#include "models/shard.h"
#include "parallel/device_communicator.h"

namespace sluice {

class DevicePool;

// Returns the memory that LoadDeviceModel, or LoadDeviceShare for the rank at `place`, will take
// from the pool. Reads only config.json. weight_bytes, lora_bytes and workspace_bytes (activations,
// step inputs, logits) are exact if the checkpoint is stored as its configuration says. graph_bytes
// (GraphBytes) is separate. Excludes page-locked host memory. A block of the cache takes only the
// part of kv_bytes_per_block that belongs to the layers of one group (KvCache::Wrap).
//
// kUnsupported names the option or operator without a device kernel: `dtype` other than BF16,
// `kv_cache_dtype` other than BF16 and FP8, unsupported shapes, or an architecture that is not in
// the registry.
Result<ModelMemory> PlanDeviceModel(const ModelConfig& config, const ModelOptions& options,
                                    const DeviceInfo& device, const RankPlace& place = {});

// Like LoadModel, into memory of `pool`. Devices of compute capability 8.9 and later multiply E4M3
// numbers. On these devices, kAuto and kCheckpoint round inputs as the checkpoint does if it rounds
// them to E4M3 per tensor or per row. All other inputs are BF16. `threads` prepare the weights and
// are not used afterwards. Forward requires a cache of KvCache::Wrap over memory of the same
// device; if a step fails it throws std::runtime_error with the device's error. The device and the
// pool's memory must outlive the model.
Result<std::unique_ptr<Model>> LoadDeviceModel(Device& device, DevicePool& pool,
                                               ThreadPool& threads,
                                               const std::filesystem::path& folder,
                                               ModelConfig config, const ModelOptions& options,
                                               const LoadProgress& progress = {});

// One rank of a group in which each rank has a separate device. `group` runs the rank's exchanges
// on `stream`; null for a single rank.
struct DeviceRank {
  RankPlace place;
  std::shared_ptr<DeviceStream> stream;
  std::unique_ptr<DeviceCommunicator> group;
  // stage: the ranks that share this rank's layers. The next members: their devices, and
  // DeviceCommunicatorOptions::stop of `group`. All outlive the call. If they are null and empty,
  // ranks gather only through `group`.
  Communicator* stage = nullptr;
  std::vector<Device*> stage_devices = {};
  std::shared_ptr<DeviceBuffer> stop = nullptr;
};

// Loads the rank's share from a checkpoint of OpenChecked, which several ranks may read
// concurrently; null: random weights. The share and its cache, which has the share's heads and
// layers, follow DecoderModel's rules for ranks. `target_tables`: the tables of a drafting head's
// target.
Result<std::unique_ptr<Model>> LoadDeviceShare(Device& device, DevicePool& pool,
                                               ThreadPool& threads, const Checkpoint* checkpoint,
                                               ModelConfig config, const ModelOptions& options,
                                               DeviceRank rank, const LoadProgress& progress = {},
                                               const DeviceTables& target_tables = {});

// Like LoadDrafter, on the device of `target`, which outlives the head. The head's steps run on the
// target's stream, after the target's steps. The head's cache belongs to the caller. REQUIRES:
// `target` is a decoder of LoadDeviceModel.
Result<std::unique_ptr<Model>> LoadDeviceDrafter(Device& device, DevicePool& pool,
                                                 ThreadPool& threads,
                                                 const std::filesystem::path& folder,
                                                 ModelConfig config, const ModelOptions& options,
                                                 Model& target);

}  // namespace sluice
