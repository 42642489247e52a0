#include "models/parallel_model.h"

#include <algorithm>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>

#include "base/check.h"
#include "base/log.h"
#include "base/mutex.h"
#include "models/share.h"
#include "models/step_channel.h"
#include "parallel/local_group.h"

namespace sluice {
namespace {

// Adds up what the ranks tell of their loading.
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

// What a rank has. Ownership: of everything; members are destroyed in the reverse order of their
// use.
struct Rank {
  RankPlace place;
  std::unique_ptr<Communicator> all;
  std::unique_ptr<Communicator> stage;  // null where the rank is alone in its stage
  std::unique_ptr<StepChannel> channel;
  std::unique_ptr<ThreadPool> own_pool;  // null at rank 0, whose pool is the engine's
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<DecoderModel> model;

  RankGroups groups() const { return {.all = all.get(), .stage = stage.get()}; }
};

Result<std::unique_ptr<ThreadPool>> StartRankThreads(const RankThreads& threads) {
  try {
    return std::make_unique<ThreadPool>(threads.num_threads, threads.cpus);
  } catch (const std::system_error& error) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("the system refuses {} threads ({}): lower threads, or raise the limit "
                            "of this process (ulimit -u, or its control group's pids.max)",
                            threads.num_threads, error.what()),
                "threads");
  }
}

// Where a rank's weights are from.
struct WeightSource {
  const Checkpoint* checkpoint = nullptr;  // null for random weights
  LoadProgress progress = {};
  const DecoderModel* loaded = nullptr;  // not null: they are those of this one
};

// The memory of the share is touched by the threads that will read it.
Status LoadRank(Rank& rank, ThreadPool& pool, const WeightSource& source, const ModelConfig& config,
                const ModelOptions& options, const ParallelOptions& parallel) {
  pool.PinCaller();
  const RankPlace& place = rank.place;
  if (place.tensor_size > 1)
    rank.stage = rank.all->Split(place.stage * place.tensor_size, place.tensor_size);
  if (source.loaded != nullptr) {
    ASSIGN_OR_RETURN(rank.model, source.loaded->ShareWith(pool, rank.groups()));
  } else {
    ASSIGN_OR_RETURN(rank.model, LoadShare(pool, source.checkpoint, config, options, place,
                                           rank.groups(), source.progress));
  }
  const DecoderSpec share = ShareOf(config.spec, place);
  const RowRange layers =
      CutLayers(static_cast<int64_t>(config.spec.layers.size()), place.stage, place.num_stages);
  ASSIGN_OR_RETURN(KvCache cache,
                   KvCache::Allocate(KvLayoutOf(share, options),
                                     StageGroups(parallel.kv_groups, layers), parallel.num_blocks));
  cache.Warm(pool);
  rank.cache = std::make_unique<KvCache>(std::move(cache));
  return {};
}

Status Named(Status status, int rank) {
  if (status) return status;
  Error error = std::move(status).error();
  error.message = fmt::format("rank {}: {}", rank, error.message);
  return tl::unexpected<Error>(std::move(error));
}

// Rank 0's share, which takes the others along.
class ParallelModel final : public Model {
 public:
  ParallelModel(const ModelConfig& config, const ParallelOptions& parallel)
      : Model(config), results_(static_cast<size_t>(parallel.num_ranks())) {
    // With fewer CPUs than threads nobody may spin.
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
      rank.channel = MakeLocalStepChannel(*rank.all);
    }
  }

  ~ParallelModel() override {
    try {
      ranks_.front().channel->Close();
    } catch (const GroupError& error) {
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

  // With the weights of `loaded`.
  Status ShareWeights(const ParallelModel& loaded, ThreadPool& pool, const ModelOptions& options,
                      const ParallelOptions& parallel) {
    CHECK_EQ(loaded.ranks_.size(), ranks_.size());
    return Start(pool, options, parallel,
                 [&](size_t i) { return WeightSource{.loaded = loaded.ranks_[i].model.get()}; });
  }

  std::unique_ptr<KvCache> TakeCache() { return std::move(ranks_.front().cache); }

  void PrepareThread(const ThreadPool& pool) override { ranks_.front().model->PrepareThread(pool); }

  void Forward(ThreadPool& pool, const StepInput& input, KvCache& cache, float* logits) override {
    Rank& rank = ranks_.front();
    try {
      rank.channel->Publish(input);
      rank.model->Forward(pool, input, cache, logits);
      rank.channel->Finish();
    } catch (const GroupError&) {
      throw;
    } catch (const std::exception& error) {
      rank.all->Fail(error.what());
      throw;
    }
  }

  Status CheckAlive() override {
    const std::string reason = ranks_.front().all->failure();
    if (reason.empty()) return {};
    return Fail(ErrorCode::kUnavailable, reason);
  }

 private:
  // Starts the ranks' threads, each with the weights that `source_of(rank)` says.
  template <typename SourceOf>
  Status Start(ThreadPool& pool, const ModelOptions& options, const ParallelOptions& parallel,
               const SourceOf& source_of) {
    const auto load = [&](size_t i, ThreadPool& rank_pool) {
      return LoadRank(ranks_[i], rank_pool, source_of(i), config_, options, parallel);
    };
    size_t num_started = 0;
    Status status = StartThreads(num_started, [this, &pool, &parallel, &load](size_t i) {
      Rank& rank = ranks_[i];
      if (i == 0) return Report(i, load(i, pool));
      auto threads = StartRankThreads(parallel.threads[i]);
      Status result;
      if (threads) {
        rank.own_pool = *std::move(threads);
        result = load(i, *rank.own_pool);
      } else {
        result = tl::unexpected<Error>(std::move(threads).error());
      }
      const bool is_loaded = result.has_value();
      // Behind this nothing of the caller's is used.
      Report(i, std::move(result));
      if (is_loaded) ComputeSteps(rank);
    });
    for (size_t i = 0; i < num_started; ++i) {
      Status result = Named(ResultOf(i), static_cast<int>(i));
      if (status && !result) status = std::move(result);
    }
    // Those that wait for steps hear that there will be none.
    if (!status) ranks_.front().all->Fail(status.error().message);
    return status;
  }

  // A thread for each rank, which begins with `run(rank)`.
  template <typename Run>
  Status StartThreads(size_t& num_started, const Run& run) {
    try {
      for (; num_started < ranks_.size(); ++num_started) {
        threads_.emplace_back([run, i = num_started] {
          ::pthread_setname_np(::pthread_self(), fmt::format("rank-{}", i).c_str());
          run(i);
        });
      }
    } catch (const std::system_error& error) {
      return Fail(ErrorCode::kResourceExhausted,
                  fmt::format("the system refuses a thread for rank {} ({}): raise the limit of "
                              "this process (ulimit -u, or its control group's pids.max)",
                              num_started, error.what()),
                  "tensor_parallel_size");
    }
    return {};
  }

  static void ComputeSteps(Rank& rank) {
    try {
      rank.model->PrepareThread(*rank.own_pool);
      while (const StepInput* input = rank.channel->Receive()) {
        rank.model->Forward(*rank.own_pool, *input, *rank.cache, nullptr);
        rank.channel->Finish();
      }
    } catch (const std::exception& error) {
      // Of a group that has failed already the first reason stays.
      rank.all->Fail(error.what());
    } catch (...) {
      rank.all->Fail("unknown exception");
    }
  }

  void Report(size_t rank, Status result) {
    const MutexLock lock(mutex_);
    results_[rank] = std::move(result);
    reported_.NotifyAll();
  }

  Status ResultOf(size_t rank) {
    MutexLock lock(mutex_);
    while (!results_[rank]) reported_.Wait(lock);
    return *results_[rank];
  }

  std::vector<Rank> ranks_;
  std::vector<std::thread> threads_;

  Mutex mutex_;
  CondVar reported_;
  std::vector<std::optional<Status>> results_ GUARDED_BY(mutex_);  // of loading, by rank
};

}  // namespace

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
    all.kv_bytes_per_block += share.kv_bytes_per_block;
    all.kv_bytes_per_group_block += share.kv_bytes_per_group_block;
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
  auto model = std::make_unique<ParallelModel>(config, parallel);
  RETURN_IF_ERROR(
      model->Load(pool, checkpoint ? &*checkpoint : nullptr, options, parallel, progress));
  ParallelShare share;
  share.cache = model->TakeCache();
  share.model = std::move(model);
  return share;
}

Result<ParallelShare> ShareParallelModel(const Model& loaded, ThreadPool& pool,
                                         const ModelOptions& options,
                                         const ParallelOptions& parallel) {
  CHECK_EQ(static_cast<int>(parallel.threads.size()), parallel.num_ranks());
  const auto& ranks = dynamic_cast<const ParallelModel&>(loaded);
  auto model = std::make_unique<ParallelModel>(loaded.config(), parallel);
  RETURN_IF_ERROR(model->ShareWeights(ranks, pool, options, parallel));
  ParallelShare share;
  share.cache = model->TakeCache();
  share.model = std::move(model);
  return share;
}

}  // namespace sluice
