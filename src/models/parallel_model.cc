#include "models/parallel_model.h"

#include <algorithm>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/firewall.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread_limit.h"
#include "device/device_pool.h"
#include "kernels/cuda/device_kernels.h"
#include "models/device/device_model.h"
#include "models/kv_layout.h"
#include "models/lora_store.h"
#include "models/message_step_channel.h"
#include "models/rank_calls.h"
#include "models/rank_steps.h"
#include "models/share.h"
#include "models/step_channel.h"
#include "models/weight_stage.h"
#include "parallel/emulated_nccl.h"
#include "parallel/local_group.h"
#include "parallel/nccl_library.h"

namespace sluice {
namespace {

// Returns the communication library for a kind of device. It is opened once per process.
Result<const nccl::Functions*> NcclFor(DeviceKind kind) {
  if (kind == DeviceKind::kEmulated) return &EmulatedNccl();
  using Opened = Result<std::unique_ptr<const NcclLibrary>>;
  const auto open = [](NcclMaker maker) {
    Opened opened = NcclLibrary::Open("", maker);
    if (opened) LOG_INFO("models", "devices exchange by {}", (*opened)->Describe());
    return opened;
  };
  const auto functions = [](const Opened& library) -> Result<const nccl::Functions*> {
    if (!library) return tl::unexpected<Error>(library.error());
    return &(*library)->functions();
  };
  if (kind == DeviceKind::kHip) {
    static const Opened rccl = open(NcclMaker::kAmd);
    return functions(rccl);
  }
  static const Opened nccl = open(NcclMaker::kNvidia);
  return functions(nccl);
}

// Sums the loading progress of all ranks.
class JointProgress {
 public:
  JointProgress(const LoadProgress& progress, int num_ranks)
      : progress_(progress), ranks_(static_cast<size_t>(num_ranks)) {}

  LoadProgress Of(int rank) {
    if (!progress_) return {};
    return [this, rank](int64_t done, int64_t total) {
      const MutexLock lock(mutex_);
      ranks_[static_cast<size_t>(rank)] = {done, total};
      int64_t all_done = 0, all = 0;
      for (const auto& [rank_done, rank_total] : ranks_) {
        all_done += rank_done;
        all += rank_total;
      }
      progress_(all_done, all);
    };
  }

 private:
  const LoadProgress& progress_;
  Mutex mutex_;
  std::vector<std::pair<int64_t, int64_t>> ranks_ GUARDED_BY(mutex_);
};

// The objects of a rank. Ownership: owns all members, which are destroyed in reverse order.
struct Rank {
  RankPlace place;
  std::unique_ptr<Communicator> all;
  std::unique_ptr<Communicator> stage;  // null if the rank is alone in its stage
  std::unique_ptr<StepChannel> channel;
  std::unique_ptr<RankCalls> calls;
  std::unique_ptr<ThreadPool> own_pool;  // null at rank 0, whose pool is the engine's
  Device* device = nullptr;              // null: the CPU
  std::unique_ptr<DevicePool> device_pool;
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<CacheBytes> bytes;  // access to the cache; null if no blocks are moved
  std::unique_ptr<Model> model;
  const DecoderModel* decoder = nullptr;  // the model, if it is on the CPU
  // Model with staged weights; null: no weights are staged. The rank uses it only when it switches
  // to it.
  std::unique_ptr<DecoderModel> staged;

  RankGroups groups() const { return {.all = all.get(), .stage = stage.get()}; }
};

// The source of a rank's weights.
struct WeightSource {
  const Checkpoint* checkpoint = nullptr;  // null for random weights
  LoadProgress progress = {};
  const DecoderModel* loaded = nullptr;  // if not null, the weights of this model are shared
};

Status MakeBytes(Rank& rank, const ParallelOptions& parallel) {
  if (!parallel.moves_blocks) return {};
  ASSIGN_OR_RETURN(rank.bytes, MakeCacheBytes(*rank.cache, rank.device));
  return {};
}

// Loads the rank's share and its cache into the memory of its device.
Status LoadOnDevice(Rank& rank, ThreadPool& pool, const WeightSource& source,
                    const ModelConfig& config, const ModelOptions& options,
                    const ParallelOptions& parallel, const std::shared_ptr<DeviceBuffer>& stop) {
  CHECK(source.loaded == nullptr, "devices share no weights");
  Device& device = *rank.device;
  DeviceRank mine{.place = rank.place, .stream = nullptr, .group = nullptr};
  ASSIGN_OR_RETURN(mine.stream, device.CreateStream());
  if (rank.stage != nullptr && !options.exchanges_by_nccl) {
    mine.stage = rank.stage.get();
    const auto first = parallel.devices.begin() + rank.place.stage * rank.place.tensor_size;
    mine.stage_devices.assign(first, first + rank.place.tensor_size);
    mine.stop = stop;
  }
  ASSIGN_OR_RETURN(const nccl::Functions* nccl, NcclFor(device.info().kind));
  // The group is created before the weights are loaded, so that a failure to create it is reported
  // early.
  ASSIGN_OR_RETURN(mine.group, MakeNcclGroup(*nccl, *rank.all, rank.stage.get(), *mine.stream,
                                             {.deadline = parallel.deadline, .stop = mine.stop}));
  ASSIGN_OR_RETURN(const ModelMemory memory,
                   PlanDeviceModel(config, options, device.info(), rank.place));
  const KvGroups groups = ShareGroups(parallel.kv_groups, config.spec, rank.place);
  const DecoderSpec share = ShareOf(config.spec, rank.place);
  const kernels::KvLayout layout = KvLayoutOf(share, options);
  const int64_t kv_bytes =
      KvCache::BytesPerBlock(layout, groups.layers_per_group) * parallel.num_blocks;
  const int64_t state_bytes = memory.state_bytes_per_slot * options.state_slots;
  ASSIGN_OR_RETURN(
      DevicePool device_pool,
      DevicePool::Allocate(device,
                           DevicePool::Padded(memory.weight_bytes) +
                               DevicePool::Padded(memory.workspace_bytes) +
                               DevicePool::Padded(memory.lora_bytes) +
                               DevicePool::Padded(kv_bytes) + DevicePool::Padded(state_bytes),
                           "weights, workspace and KV cache"));
  rank.device_pool = std::make_unique<DevicePool>(std::move(device_pool));
  ASSIGN_OR_RETURN(rank.model, LoadDeviceShare(device, *rank.device_pool, pool, source.checkpoint,
                                               config, options, std::move(mine), source.progress));
  ASSIGN_OR_RETURN(void* const kv, rank.device_pool->Take(kv_bytes, "the KV cache"));
  rank.cache = std::make_unique<KvCache>(KvCache::Wrap(layout, groups, parallel.num_blocks, kv));
  if (state_bytes > 0) {
    ASSIGN_OR_RETURN(void* const states,
                     rank.device_pool->Take(state_bytes, "the states of sequences"));
    rank.cache->WrapStates(StateLayout::For(share), options.state_slots, states);
  }
  return MakeBytes(rank, parallel);
}

// Loads a rank's share. Its memory is first touched by the threads that will read it.
Status LoadRank(Rank& rank, ThreadPool& pool, const WeightSource& source, const ModelConfig& config,
                const ModelOptions& options, const ParallelOptions& parallel,
                const std::shared_ptr<DeviceBuffer>& stop) {
  pool.PinCaller();
  const RankPlace& place = rank.place;
  if (place.tensor_size > 1)
    rank.stage = rank.all->Split(place.stage * place.tensor_size, place.tensor_size);
  if (rank.device != nullptr)
    return LoadOnDevice(rank, pool, source, config, options, parallel, stop);
  std::unique_ptr<DecoderModel> decoder;
  if (source.loaded != nullptr) {
    ASSIGN_OR_RETURN(decoder, source.loaded->ShareWith(pool, rank.groups()));
  } else {
    ASSIGN_OR_RETURN(decoder, LoadShare(pool, source.checkpoint, config, options, place,
                                        rank.groups(), source.progress));
  }
  rank.decoder = decoder.get();
  rank.model = std::move(decoder);
  const DecoderSpec share = ShareOf(config.spec, place);
  ASSIGN_OR_RETURN(
      KvCache cache,
      KvCache::Allocate(KvLayoutOf(share, options),
                        ShareGroups(parallel.kv_groups, config.spec, place), parallel.num_blocks));
  RETURN_IF_ERROR(cache.AllocateStates(StateLayout::For(share), options.state_slots));
  cache.Warm(pool);
  rank.cache = std::make_unique<KvCache>(std::move(cache));
  return MakeBytes(rank, parallel);
}

// Adds the rank to the message, except for failures of the group, which already name one.
Status Named(Status status, int rank) {
  if (status || status.error().code == ErrorCode::kUnavailable) return status;
  Error error = std::move(status).error();
  error.message = fmt::format("rank {}: {}", rank, error.message);
  return tl::unexpected<Error>(std::move(error));
}

// The slots of ranks that are threads. Filling a slot fills it on all ranks.
class SlotsOfAllRanks final : public LoraStore {
 public:
  explicit SlotsOfAllRanks(std::vector<std::shared_ptr<LoraStore>> ranks)
      : ranks_(std::move(ranks)) {}

  const LoraLayout& layout() const override { return ranks_.front()->layout(); }
  Status Fill(int slot, const LoraAdapter& adapter) override {
    for (const std::shared_ptr<LoraStore>& rank : ranks_)
      RETURN_IF_ERROR(rank->Fill(slot, adapter));
    return {};
  }

 private:
  const std::vector<std::shared_ptr<LoraStore>> ranks_;
};

// The model of rank 0. Computes rank 0's share and makes the other ranks compute theirs.
class ParallelModel final : public Model, public WeightStage {
 public:
  ParallelModel(const ModelConfig& config, const ModelOptions& options,
                const ParallelOptions& parallel)
      : Model(config),
        options_(options),
        parallel_(parallel),
        // On devices, receiving from another stage is enqueued on the compute stream.
        steps_in_flight_(parallel.devices.empty() ? parallel.num_stages : 1),
        results_(static_cast<size_t>(parallel.num_ranks())) {
    // If there are fewer CPUs than threads, threads must not spin.
    int num_threads = 0;
    for (const RankThreads& rank : parallel.threads) num_threads += rank.num_threads;
    auto group = MakeLocalGroup(
        {.size = parallel.num_ranks(),
         .deadline = parallel.deadline,
         .spin = num_threads <= static_cast<int>(std::thread::hardware_concurrency())});
    for (int i = 0; i < parallel.num_ranks(); ++i) {
      Rank& rank = ranks_.emplace_back();
      rank.place = RankPlace::Of(i, parallel.tensor_size, parallel.num_stages);
      rank.all = std::move(group[static_cast<size_t>(i)]);
      rank.channel =
          steps_in_flight_ == 1
              ? MakeLocalStepChannel(*rank.all, /*ends_apart=*/!parallel.devices.empty())
              : MakeMessageStepChannel(*rank.all, StepLimitsOf(options, parallel, config),
                                       steps_in_flight_);
      rank.calls = std::make_unique<RankCalls>(*rank.all);
      if (!parallel.devices.empty()) rank.device = parallel.devices[static_cast<size_t>(i)];
    }
  }

  ~ParallelModel() override {
    try {
      ranks_.front().channel->Close();
    } catch (const GroupError& error) {
      StopKernels(stop_);
      LOG_DEBUG("models", "the ranks had ended before: {}", error.what());
    }
    for (std::thread& thread : threads_) thread.join();
  }

  Status Load(ThreadPool& pool, const Checkpoint* checkpoint, const ModelOptions& options,
              const ParallelOptions& parallel, const LoadProgress& progress) {
    JointProgress joint(progress, parallel.num_ranks());
    return Start(pool, options, parallel, [&](size_t i) {
      return WeightSource{.checkpoint = checkpoint, .progress = joint.Of(static_cast<int>(i))};
    });
  }

  // Starts the ranks with the weights of `loaded`.
  Status ShareWeights(const ParallelModel& loaded, ThreadPool& pool, const ModelOptions& options,
                      const ParallelOptions& parallel) {
    CHECK_EQ(loaded.ranks_.size(), ranks_.size());
    return Start(pool, options, parallel,
                 [&](size_t i) { return WeightSource{.loaded = loaded.ranks_[i].decoder}; });
  }

  // Returns rank 0's part for the engine, except the model itself.
  ParallelShare TakeShare() {
    Rank& rank = ranks_.front();
    ParallelShare share;
    share.cache = std::move(rank.cache);
    if (parallel_.devices.empty()) share.stage = this;
    if (rank.bytes == nullptr) return share;
    const auto shares = [this](CachePiece piece) {
      return ShareBytes(piece, config_.spec, options_, parallel_);
    };
    share.bytes = MakeJointCacheBytes(*rank.calls, *rank.channel, std::move(rank.bytes),
                                      shares(CachePiece::kBlock), shares(CachePiece::kState),
                                      /*is_speaking=*/nullptr);
    return share;
  }

  Status Stage(const std::filesystem::path& folder) override {
    Drop();
    ASSIGN_OR_RETURN(const std::optional<Checkpoint> checkpoint,
                     OpenChecked(folder, config_, options_));
    std::vector<Result<std::unique_ptr<DecoderModel>>> loaded(ranks_.size());
    std::vector<std::thread> threads;
    Status status;
    const auto load = [&](size_t i) {
      loaded[i] = CatchToResult([&] {
        return LoadShareBeside(parallel_.threads[i], checkpoint ? &*checkpoint : nullptr, config_,
                               options_, ranks_[i].place, ranks_[i].groups());
      });
    };
    threads.reserve(ranks_.size());
    try {
      for (size_t i = 0; i < ranks_.size(); ++i) threads.emplace_back(load, i);
    } catch (const std::system_error& error) {
      status = Fail(ErrorCode::kResourceExhausted,
                    ThreadsRefused("a thread for each rank", error.what(), "lower --threads"));
    } catch (const std::bad_alloc&) {
      status = Fail(ErrorCode::kResourceExhausted, "out of memory");
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; status && i < ranks_.size(); ++i) {
      if (!loaded[i])
        status = Named(tl::unexpected(std::move(loaded[i]).error()), static_cast<int>(i));
    }
    for (size_t i = 0; status && i < ranks_.size(); ++i) ranks_[i].staged = *std::move(loaded[i]);
    return status;
  }

  Status StageFrom(const WeightStage& loaded) override {
    Drop();
    const auto& other = dynamic_cast<const ParallelModel&>(loaded);
    std::vector<std::unique_ptr<DecoderModel>> shared;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      ASSIGN_OR_RETURN(const auto pool, StartRankThreads(parallel_.threads[i]));
      ASSIGN_OR_RETURN(shared.emplace_back(),
                       other.ranks_[i].staged->ShareWith(*pool, ranks_[i].groups()));
    }
    for (size_t i = 0; i < ranks_.size(); ++i) ranks_[i].staged = std::move(shared[i]);
    return {};
  }

  void Drop() override {
    for (Rank& rank : ranks_) rank.staged.reset();
  }

  void Switch() override {
    Rank& rank = ranks_.front();
    CHECK(rank.staged != nullptr, "no weights are staged");
    rank.calls->Switch(*rank.channel);
    SwitchRank(rank);
  }

  void PrepareThread(const ThreadPool& pool) override { ranks_.front().model->PrepareThread(pool); }
  bool draws_tokens() const override { return ranks_.front().model->draws_tokens(); }
  DrawLimits draw_limits() const override { return ranks_.front().model->draw_limits(); }
  void PrepareLogits(std::span<float> logits) override {
    ranks_.front().model->PrepareLogits(logits);
  }

  std::shared_ptr<LoraStore> lora() override {
    std::vector<std::shared_ptr<LoraStore>> ranks;
    for (const Rank& rank : ranks_) {
      if (auto slots = rank.model->lora(); slots != nullptr) ranks.push_back(std::move(slots));
    }
    return ranks.empty() ? nullptr : std::make_shared<SlotsOfAllRanks>(std::move(ranks));
  }

  void Forward(ThreadPool& pool, const StepInput& input, KvCache& cache, float* logits) override {
    Begin(pool, input, cache, logits);
    Finish(pool);
  }
  int steps_in_flight() const override { return steps_in_flight_; }
  void Begin(ThreadPool& pool, const StepInput& input, KvCache& cache, float* logits) override {
    Rank& rank = ranks_.front();
    StoppingKernels(
        [&] { LeadBegin(*rank.all, *rank.channel, *rank.model, pool, input, cache, logits); });
  }
  void Finish(ThreadPool& pool) override {
    Rank& rank = ranks_.front();
    StoppingKernels([&] { LeadFinish(*rank.all, *rank.channel, *rank.model, pool); });
  }

  // Only devices capture graphs. Every rank captures the same sizes, at the same time.
  Status RecordSteps(const RecordedSteps& steps, KvCache& cache) override {
    if (parallel_.devices.empty() || steps.sequences.empty()) return {};
    Rank& rank = ranks_.front();
    recorded_ = steps;  // The other ranks read `recorded_` until they have captured their graphs.
    try {
      return rank.calls->Record(*rank.channel,
                                [&] { return rank.model->RecordSteps(recorded_, cache); });
    } catch (const GroupError& error) {
      StopKernels(stop_);
      return Fail(ErrorCode::kUnavailable, error.what());
    }
  }
  int64_t num_replayed() const override { return ranks_.front().model->num_replayed(); }

  Status CheckAlive() override {
    const std::string reason = ranks_.front().all->failure();
    if (reason.empty()) return {};
    StopKernels(stop_);
    return Fail(ErrorCode::kUnavailable, reason);
  }

 private:
  // Starts the ranks' threads, each with the weights from `source_of(rank)`.
  template <typename SourceOf>
  Status Start(ThreadPool& pool, const ModelOptions& options, const ParallelOptions& parallel,
               const SourceOf& source_of) {
    const auto load = [&](size_t i, ThreadPool& rank_pool) {
      return LoadRank(ranks_[i], rank_pool, source_of(i), config_, options, parallel, stop_);
    };
    if (!parallel.devices.empty() && parallel.tensor_size > 1 && !options.exchanges_by_nccl) {
      ASSIGN_OR_RETURN(DeviceBuffer stop, parallel.devices.front()->AllocatePinned(
                                              sizeof(uint32_t), "a word to stop"));
      *stop.As<uint32_t>() = 0;
      stop_ = std::make_shared<DeviceBuffer>(std::move(stop));
    }
    size_t num_started = 0;
    Status status = StartThreads(num_started, [this, &pool, &parallel, &load](size_t i) {
      Rank& rank = ranks_[i];
      if (i == 0) return Report(i, CatchToResult([&] { return load(i, pool); }));
      Status result = CatchToResult([&]() -> Status {
        ASSIGN_OR_RETURN(rank.own_pool, StartRankThreads(parallel.threads[i]));
        return load(i, *rank.own_pool);
      });
      const bool is_loaded = result.has_value();
      // The caller's objects must not be used after Report.
      Report(i, std::move(result));
      if (is_loaded) ComputeSteps(rank);
    });
    // Waits for all ranks first: adding a rank's name to an error may throw, while other ranks
    // still use the caller's objects.
    for (size_t i = 0; i < num_started; ++i) Await(i);
    for (size_t i = 0; i < num_started; ++i) {
      Status result = Named(ResultOf(i), static_cast<int>(i));
      // Report the root cause, not the kUnavailable that it caused in other ranks.
      const bool is_echo = !status && status.error().code == ErrorCode::kUnavailable;
      if (!result && (status || is_echo)) status = std::move(result);
    }
    // Ends the wait of ranks for further steps.
    if (!status) ranks_.front().all->Fail(status.error().message);
    return status;
  }

  // Starts a thread for each rank, which calls `run(rank)`.
  template <typename Run>
  Status StartThreads(size_t& num_started, const Run& run) {
    try {
      threads_.reserve(ranks_.size());
      for (; num_started < ranks_.size(); ++num_started) {
        threads_.emplace_back([run, i = num_started] {
          RunGuarded("models", "a rank", [&] {
            NameThread(fmt::format("rank-{}", i).c_str());
            run(i);
          });
        });
      }
    } catch (const std::system_error& error) {
      return Fail(ErrorCode::kResourceExhausted,
                  ThreadsRefused(fmt::format("a thread for rank {}", num_started), error.what(),
                                 "lower --tensor-parallel-size"),
                  "tensor_parallel_size");
    } catch (const std::bad_alloc&) {
      return Fail(ErrorCode::kResourceExhausted, "out of memory");
    }
    return {};
  }

  // `run` fails the group if it throws.
  template <typename Run>
  void StoppingKernels(const Run& run) {
    try {
      run();
    } catch (...) {
      StopKernels(stop_);
      throw;
    }
  }

  static Model& SwitchRank(Rank& rank) {
    rank.decoder = rank.staged.get();
    rank.model = std::move(rank.staged);
    return *rank.model;
  }

  void ComputeSteps(Rank& rank) {
    const auto carry_out = [this, &rank](const RankCall& call, Model& share) -> Model& {
      return rank.calls->CarryOut(
          call, share, rank.bytes.get(), [&rank]() -> Model& { return SwitchRank(rank); },
          [this, &rank](Model& model) { return model.RecordSteps(recorded_, *rank.cache); });
    };
    try {
      FollowSteps(*rank.all, *rank.channel, *rank.model, *rank.own_pool, *rank.cache, carry_out);
    } catch (const GroupError&) {
      StopKernels(stop_);  // Rank 0 reports the failure.
    } catch (...) {
      rank.all->Fail(CaughtMessage());
      StopKernels(stop_);
    }
  }

  // If a rank on a device fails to load, notifies the ranks that wait for that rank.
  void Report(size_t rank, Status result) {
    if (!result && ranks_[rank].device != nullptr) {
      RunGuarded("models", "to tell other ranks of a failure",
                 [&] { ranks_[rank].all->Fail(result.error().message); });
    }
    const MutexLock lock(mutex_);
    results_[rank] = std::move(result);
    reported_.NotifyAll();
  }

  void Await(size_t rank) {
    MutexLock lock(mutex_);
    while (!results_[rank]) reported_.Wait(lock);
  }

  Status ResultOf(size_t rank) {
    const MutexLock lock(mutex_);
    return *results_[rank];
  }

  const ModelOptions options_;
  const ParallelOptions parallel_;
  const int steps_in_flight_;
  std::vector<Rank> ranks_;
  RecordedSteps recorded_;              // set by RecordSteps
  std::shared_ptr<DeviceBuffer> stop_;  // DeviceCommunicatorOptions::stop; null: not needed
  std::vector<std::thread> threads_;

  Mutex mutex_;
  CondVar reported_;
  std::vector<std::optional<Status>> results_ GUARDED_BY(mutex_);  // results of loading, by rank
};

}  // namespace

Result<std::unique_ptr<ThreadPool>> StartRankThreads(const RankThreads& threads) {
  try {
    return std::make_unique<ThreadPool>(threads.num_threads, threads.cpus);
  } catch (const std::system_error& error) {
    return Fail(ErrorCode::kResourceExhausted,
                ThreadsRefused(fmt::format("{} threads", threads.num_threads), error.what(),
                               "lower --threads"),
                "threads");
  }
}

std::vector<int64_t> ShareBytes(CachePiece piece, const DecoderSpec& spec,
                                const ModelOptions& options, const ParallelOptions& parallel) {
  std::vector<int64_t> bytes;
  for (int rank = 0; rank < parallel.num_ranks(); ++rank) {
    const RankPlace place = RankPlace::Of(rank, parallel.tensor_size, parallel.num_stages);
    const DecoderSpec share = ShareOf(spec, place);
    bytes.push_back(piece == CachePiece::kState
                        ? StateLayout::For(share).slot_bytes()
                        : KvCache::BytesPerBlock(
                              KvLayoutOf(share, options),
                              ShareGroups(parallel.kv_groups, spec, place).layers_per_group));
  }
  return bytes;
}

StepLimits StepLimitsOf(const ModelOptions& options, const ParallelOptions& parallel,
                        const ModelConfig& model) {
  const std::vector<int8_t>& axes = model.spec.rope_axes;
  return {.max_rows = options.max_rows,
          .max_slices = options.max_slices,
          .max_context = options.max_context,
          .max_logit_rows = options.max_logit_rows,
          .block_size = options.block_size,
          .num_groups = parallel.kv_groups.num_groups(),
          .num_blocks = parallel.num_blocks,
          .vocab_size = model.vocab_size,
          .num_adapters = options.lora.num_slots,
          .num_states = options.state_slots,
          .image_rows = options.image_rows,
          .image_row_width = model.spec.ImageRowWidth(),
          .num_axes = axes.empty() ? 0 : *std::ranges::max_element(axes) + 1};
}

Result<ModelMemory> PlanDeviceRanks(const ModelConfig& config, const ModelOptions& options,
                                    const DeviceInfo& device, int tensor_size, int num_stages) {
  RETURN_IF_ERROR(CheckRanks(config.spec, tensor_size, num_stages));
  if (tensor_size > device::kMostJoinedPieces) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("tensor_parallel_size {}: at most {} devices share a layer; lower it, "
                            "and raise pipeline_parallel_size",
                            tensor_size, device::kMostJoinedPieces),
                "tensor_parallel_size");
  }
  ModelMemory most;
  for (int rank = 0; rank < tensor_size * num_stages; ++rank) {
    ASSIGN_OR_RETURN(
        const ModelMemory share,
        PlanDeviceModel(config, options, device, RankPlace::Of(rank, tensor_size, num_stages)));
    const auto raise = [&](int64_t ModelMemory::*bytes) {
      most.*bytes = std::max(most.*bytes, share.*bytes);
    };
    raise(&ModelMemory::weight_bytes);
    raise(&ModelMemory::token_weight_bytes);
    raise(&ModelMemory::workspace_bytes);
    raise(&ModelMemory::lora_bytes);
    raise(&ModelMemory::kv_bytes_per_block);
    raise(&ModelMemory::kv_bytes_per_group_block);
    raise(&ModelMemory::state_bytes_per_slot);
    raise(&ModelMemory::graph_bytes);
    most.kv_groups = share.kv_groups;
  }
  return most;
}

Result<ModelMemory> PlanParallelModel(const ModelConfig& config, const ModelOptions& options,
                                      int threads_per_rank, int tensor_size, int num_stages) {
  RETURN_IF_ERROR(CheckRanks(config.spec, tensor_size, num_stages));
  ModelMemory all;
  for (int rank = 0; rank < tensor_size * num_stages; ++rank) {
    ASSIGN_OR_RETURN(
        const ModelMemory share,
        PlanShare(config, options, threads_per_rank, RankPlace::Of(rank, tensor_size, num_stages)));
    all.weight_bytes += share.weight_bytes;
    all.token_weight_bytes += share.token_weight_bytes;
    all.workspace_bytes += share.workspace_bytes;
    all.lora_bytes += share.lora_bytes;
    all.kv_bytes_per_block += share.kv_bytes_per_block;
    all.kv_bytes_per_group_block += share.kv_bytes_per_group_block;
    all.state_bytes_per_slot += share.state_bytes_per_slot;
    all.kv_groups = share.kv_groups;
  }
  return all;
}

Result<ParallelShare> LoadParallelModel(ThreadPool& pool, const std::filesystem::path& folder,
                                        const ModelConfig& config, const ModelOptions& options,
                                        const ParallelOptions& parallel,
                                        const LoadProgress& progress) {
  CHECK_EQ(static_cast<int>(parallel.threads.size()), parallel.num_ranks());
  RETURN_IF_ERROR(CheckRanks(config.spec, parallel.tensor_size, parallel.num_stages));
  ASSIGN_OR_RETURN(const std::optional<Checkpoint> checkpoint,
                   OpenChecked(folder, config, options));
  auto model = std::make_unique<ParallelModel>(config, options, parallel);
  RETURN_IF_ERROR(
      model->Load(pool, checkpoint ? &*checkpoint : nullptr, options, parallel, progress));
  ParallelShare share = model->TakeShare();
  share.model = std::move(model);
  return share;
}

Result<ParallelShare> ShareParallelModel(const Model& loaded, ThreadPool& pool,
                                         const ModelOptions& options,
                                         const ParallelOptions& parallel) {
  CHECK_EQ(static_cast<int>(parallel.threads.size()), parallel.num_ranks());
  const auto& ranks = dynamic_cast<const ParallelModel&>(loaded);
  auto model = std::make_unique<ParallelModel>(loaded.config(), options, parallel);
  RETURN_IF_ERROR(model->ShareWeights(ranks, pool, options, parallel));
  ParallelShare share = model->TakeShare();
  share.model = std::move(model);
  return share;
}

}  // namespace sluice
