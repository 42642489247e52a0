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

// The threads of a rank, and the CPUs to pin them to; empty: not pinned.
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
  // The cache; every rank has the same blocks.
  KvGroups kv_groups;
  int64_t num_blocks = 0;
  // One device per rank, all of one kind, which outlive the model; empty: CPUs. Each holds its
  // rank's weights, workspace and cache.
  std::vector<Device*> devices = {};
  // How long a rank waits for another inside a step.
  std::chrono::milliseconds deadline = std::chrono::minutes(5);

  // Blocks and states are moved between the cache and the host: ParallelShare::bytes is made.
  bool moves_blocks = false;

  int num_ranks() const { return tensor_size * num_stages; }
};

// Bytes of a piece in the cache of each rank, by rank.
std::vector<int64_t> ShareBytes(CachePiece piece, const DecoderSpec& spec,
                                const ModelOptions& options, const ParallelOptions& parallel);

// Limits for sending the model's steps as messages.
StepLimits StepLimitsOf(const ModelOptions& options, const ParallelOptions& parallel,
                        const ModelConfig& model);

// On devices: the largest weights, workspace and cache of any rank, separately. kInvalidArgument as
// in CheckRanks, kUnsupported as in PlanDeviceModel.
Result<ModelMemory> PlanDeviceRanks(const ModelConfig& config, const ModelOptions& options,
                                    const DeviceInfo& device, int tensor_size, int num_stages);

// On CPUs: the sum over all ranks with `threads_per_rank` threads each, from config.json alone.
// kInvalidArgument as in CheckRanks.
Result<ModelMemory> PlanParallelModel(const ModelConfig& config, const ModelOptions& options,
                                      int threads_per_rank, int tensor_size, int num_stages);
// Like PlanParallelModel, for a single rank.
Result<ModelMemory> PlanShare(const ModelConfig& config, const ModelOptions& options,
                              int num_threads, const RankPlace& place);

// Rank 0's part of a model, for the engine.
struct ParallelShare {
  std::unique_ptr<Model> model;  // destroying it ends the other ranks
  std::unique_ptr<KvCache> cache;
  // Replaces the weights of all ranks. Part of the model; null on devices.
  WeightStage* stage = nullptr;
  // The caches of all ranks; null without ParallelOptions::moves_blocks. Refers to model and cache.
  std::unique_ptr<CacheBytes> bytes = {};
};

// Starts the other ranks and loads each one's share on its own threads. An error names the rank.
// `pool`: rank 0's pool.
Result<ParallelShare> LoadParallelModel(ThreadPool& pool, const std::filesystem::path& folder,
                                        const ModelConfig& config, const ModelOptions& options,
                                        const ParallelOptions& parallel,
                                        const LoadProgress& progress = {});

// Starts further ranks, with their own threads and cache, that share the weights of the ranks of
// `loaded` (made by LoadParallelModel), which may be destroyed first. REQUIRES: the same sizes;
// `options` as in that call.
Result<ParallelShare> ShareParallelModel(const Model& loaded, ThreadPool& pool,
                                         const ModelOptions& options,
                                         const ParallelOptions& parallel);

}  // namespace sluice
