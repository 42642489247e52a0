// A model that several ranks compute, as threads of this process (step_channel.h says how a step
// reaches them): on CPUs, or each on a device of its own.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "device/device.h"
#include "models/model.h"
#include "models/shard.h"
#include "models/step_message.h"

namespace sluice {

// The threads of a rank, and the CPUs that they are pinned to; empty: they are not.
struct RankThreads {
  int num_threads = 1;
  std::vector<int> cpus;
};

struct ParallelOptions {
  int tensor_size = 1;  // ranks that share a layer
  int num_stages = 1;
  std::vector<RankThreads> threads;  // by rank; those of rank 0 are the caller's pool
  // The cache: the same blocks at every rank.
  KvGroups kv_groups;
  int64_t num_blocks = 0;
  // By rank, of one kind, which outlive the model; empty: CPUs. Each holds the memory of its rank's
  // weights, workspace and cache.
  std::vector<Device*> devices = {};
  // How long a rank waits for another inside a step.
  std::chrono::milliseconds deadline = std::chrono::minutes(5);

  int num_ranks() const { return tensor_size * num_stages; }
};

// The limits of its steps as messages.
StepLimits StepLimitsOf(const ModelOptions& options, const ParallelOptions& parallel,
                        int64_t vocab_size);

// On devices: what the rank needs that needs most, of weights, of workspace and of cache each;
// kInvalidArgument as of CheckRanks, kUnsupported as of PlanDeviceModel.
Result<ModelMemory> PlanDeviceRanks(const ModelConfig& config, const ModelOptions& options,
                                    const DeviceInfo& device, int tensor_size, int num_stages);

// On CPUs: what all ranks take together, from config.json alone, where each has `threads_per_rank`
// threads; kInvalidArgument as of CheckRanks.
Result<ModelMemory> PlanParallelModel(const ModelConfig& config, const ModelOptions& options,
                                      int threads_per_rank, int tensor_size, int num_stages);
// What one of them takes.
Result<ModelMemory> PlanShare(const ModelConfig& config, const ModelOptions& options,
                              int num_threads, const RankPlace& place);

// Rank 0's part of a model, for the engine.
struct ParallelShare {
  std::unique_ptr<Model> model;  // outlives nothing: the other ranks end with it
  std::unique_ptr<KvCache> cache;
};

// Starts the other ranks and loads each one's share on its own threads. An error names the rank.
// `pool`: rank 0's.
Result<ParallelShare> LoadParallelModel(ThreadPool& pool, const std::filesystem::path& folder,
                                        const ModelConfig& config, const ModelOptions& options,
                                        const ParallelOptions& parallel,
                                        const LoadProgress& progress = {});

// Ranks of their own, threads and cache included, that share the weights of those of `loaded`,
// which LoadParallelModel made and which may end before. REQUIRES: the same sizes; `options` as
// there.
Result<ParallelShare> ShareParallelModel(const Model& loaded, ThreadPool& pool,
                                         const ModelOptions& options,
                                         const ParallelOptions& parallel);

}  // namespace sluice
