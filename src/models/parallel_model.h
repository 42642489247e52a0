// A model computed by several ranks, which are threads of this process (step_channel.h describes
// how they receive steps): on CPUs, or each on its own device.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "device/device.h"
#include "models/cache_bytes.h"
#include "models/model.h"
#include "models/shard.h"
#include "models/step_message.h"

namespace sluice {

class WeightStage;

// The number of a rank's threads, and the CPUs to which they are pinned; empty: not pinned.
struct RankThreads {
  int num_threads = 1;
  std::vector<int> cpus;
};

// Starts the threads of a rank; kResourceExhausted if the system refuses them.
Result<std::unique_ptr<ThreadPool>> StartRankThreads(const RankThreads& threads);

struct ParallelOptions {
  int tensor_size = 1;  // ranks that share a layer
  int num_stages = 1;
  // One entry per rank; the threads of rank 0 are the caller's pool.
  std::vector<RankThreads> threads;
  // Settings of the cache; every rank has the same blocks.
  KvGroups kv_groups;
  int64_t num_blocks = 0;
  // One device per rank, all of the same kind; empty: CPUs. Each has the weights, workspace and
  // cache of its rank. They outlive the model.
  std::vector<Device*> devices = {};
  // How long a rank waits for another inside a step.
  std::chrono::milliseconds deadline = std::chrono::minutes(5);

  // Whether blocks and states are moved between the cache and the host; if so, ParallelShare::bytes
  // is set.
  bool moves_blocks = false;

  int num_ranks() const { return tensor_size * num_stages; }
};

// Returns the bytes of a piece in the cache of each rank, by rank.
std::vector<int64_t> ShareBytes(CachePiece piece, const DecoderSpec& spec,
                                const ModelOptions& options, const ParallelOptions& parallel);

// Returns the limits for sending the model's steps as messages.
StepLimits StepLimitsOf(const ModelOptions& options, const ParallelOptions& parallel,
                        const ModelConfig& model);

// For devices: returns the largest weights, the largest workspace and the largest cache of any
// rank. kInvalidArgument as in CheckRanks, kUnsupported as in PlanDeviceModel.
Result<ModelMemory> PlanDeviceRanks(const ModelConfig& config, const ModelOptions& options,
                                    const DeviceInfo& device, int tensor_size, int num_stages);

// For CPUs: returns the sum over all ranks, with `threads_per_rank` threads each. Computed only
// from config.json. kInvalidArgument as in CheckRanks.
Result<ModelMemory> PlanParallelModel(const ModelConfig& config, const ModelOptions& options,
                                      int threads_per_rank, int tensor_size, int num_stages);
// Like PlanParallelModel, for a single rank.
Result<ModelMemory> PlanShare(const ModelConfig& config, const ModelOptions& options,
                              int num_threads, const RankPlace& place);

// The objects of rank 0 that the engine uses.
struct ParallelShare {
  std::unique_ptr<Model> model;  // destroying it ends the other ranks
  std::unique_ptr<KvCache> cache;
  // Replaces the weights of all ranks. It is a part of `model`; null on devices.
  WeightStage* stage = nullptr;
  // Access to the caches of all ranks; null without ParallelOptions::moves_blocks. Refers to
  // `model` and the cache.
  std::unique_ptr<CacheBytes> bytes = {};
};

// Starts the other ranks and loads each one's share on its own threads. An error names the rank.
// `pool`: rank 0's pool.
Result<ParallelShare> LoadParallelModel(ThreadPool& pool, const std::filesystem::path& folder,
                                        const ModelConfig& config, const ModelOptions& options,
                                        const ParallelOptions& parallel,
                                        const LoadProgress& progress = {});

// Starts additional ranks, with their own threads and cache. They share the weights of the ranks of
// `loaded` (made by LoadParallelModel). `loaded` may be destroyed before them. REQUIRES: the same
// sizes; `options` as in that call.
Result<ParallelShare> ShareParallelModel(const Model& loaded, ThreadPool& pool,
                                         const ModelOptions& options,
                                         const ParallelOptions& parallel);

}  // namespace sluice
