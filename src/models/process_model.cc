#include "models/process_model.h"

#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/fair_mutex.h"
#include "base/firewall.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread_limit.h"
#include "models/kv_layout.h"
#include "models/lora_store.h"
#include "models/message_step_channel.h"
#include "models/rank_calls.h"
#include "models/rank_steps.h"
#include "models/share.h"
#include "models/weight_stage.h"

namespace sluice {
namespace {

// Interval at which the ranks are asked whether they have loaded.
constexpr std::chrono::milliseconds kAskInterval{10};

// Loads this rank's share of new weights on a separate thread, while the old share stays in use.
// Thread safety: one thread at a time.
class ShareStage {
 public:
  ShareStage(ModelConfig config, const ModelOptions& options, const RankPlace& place,
             const RankGroups& groups, int num_threads)
      : config_(std::move(config)),
        options_(options),
        place_(place),
        groups_(groups),
        num_threads_(num_threads) {}
  ~ShareStage() { Drop(); }

  // REQUIRES: nothing is being loaded.
  Status Begin(const std::filesystem::path& folder) {
    Drop();
    try {
      thread_ = std::thread([this, folder] {
        Result<std::unique_ptr<DecoderModel>> loaded = CatchToResult([&] { return Load(folder); });
        const MutexLock lock(mutex_);
        loaded_ = std::move(loaded);
      });
    } catch (const std::system_error& error) {
      return Fail(ErrorCode::kResourceExhausted,
                  ThreadsRefused("a thread for new weights", error.what(), "lower --threads"));
    }
    return {};
  }
  // Whether the share is loaded; false while it loads.
  Result<bool> IsDone() {
    const MutexLock lock(mutex_);
    if (!loaded_) return false;
    if (!*loaded_) return tl::unexpected(loaded_->error());
    return true;
  }
  // Whether no loading is in progress, so that Drop does not wait.
  bool IsAtRest() {
    const MutexLock lock(mutex_);
    return !thread_.joinable() || loaded_.has_value();
  }
  // Drops the loaded share. Waits for the thread.
  void Drop() {
    if (thread_.joinable()) thread_.join();
    const MutexLock lock(mutex_);
    loaded_.reset();
  }
  // REQUIRES: IsDone().
  std::unique_ptr<DecoderModel> Take() {
    thread_.join();
    const MutexLock lock(mutex_);
    std::unique_ptr<DecoderModel> taken = **std::move(loaded_);
    loaded_.reset();
    return taken;
  }

 private:
  Result<std::unique_ptr<DecoderModel>> Load(const std::filesystem::path& folder) const {
    ASSIGN_OR_RETURN(const std::optional<Checkpoint> checkpoint,
                     OpenChecked(folder, config_, options_));
    return LoadShareBeside({.num_threads = num_threads_, .cpus = {}},
                           checkpoint ? &*checkpoint : nullptr, config_, options_, place_, groups_);
  }

  const ModelConfig config_;
  const ModelOptions options_;
  const RankPlace place_;
  const RankGroups groups_;
  const int num_threads_;
  std::thread thread_;
  Mutex mutex_;
  std::optional<Result<std::unique_ptr<DecoderModel>>> loaded_ GUARDED_BY(mutex_);
};

// The objects of a rank. They are destroyed in reverse order.
struct ProcessShare {
  Communicator& all;
  std::unique_ptr<Communicator> stage;  // null if the rank is alone in its stage
  std::unique_ptr<MessageStepChannel> channel;
  std::unique_ptr<RankCalls> calls;
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<CacheBytes> bytes;  // access to the cache; null if no blocks are moved
  std::vector<int64_t> block_shares, state_shares;
  std::unique_ptr<ShareStage> weights;
  std::unique_ptr<Model> model;

  Model& Switch() {
    model = weights->Take();
    return *model;
  }
};

// The slots of all ranks, filled between two steps.
class SlotsOfProcesses final : public LoraStore {
 public:
  // `is_speaking` is held while sending to the other ranks.
  SlotsOfProcesses(std::shared_ptr<LoraStore> own, MessageStepChannel& channel,
                   FairMutex& is_speaking)
      : own_(std::move(own)), channel_(channel), is_speaking_(is_speaking) {}

  const LoraLayout& layout() const override { return own_->layout(); }
  Status Fill(int slot, const LoraAdapter& adapter) override {
    RETURN_IF_ERROR(own_->Fill(slot, adapter));
    std::error_code failed;  // set if the current folder does not exist
    const std::filesystem::path folder = std::filesystem::absolute(adapter.folder(), failed);
    if (failed) {
      return sluice::Fail(ErrorCode::kUnavailable,
                          fmt::format("{}: {}", adapter.folder().string(), failed.message()));
    }
    const FairMutexLock lock(is_speaking_);
    try {
      return channel_.FillEverywhere(slot, folder.string());
    } catch (const GroupError& error) {
      return sluice::Fail(ErrorCode::kUnavailable, error.what());
    }
  }

 private:
  const std::shared_ptr<LoraStore> own_;
  MessageStepChannel& channel_;
  FairMutex& is_speaking_;
};

class LeadingModel final : public Model, public WeightStage {
 public:
  LeadingModel(const ModelConfig& config, ProcessShare share)
      : Model(config), share_(std::move(share)) {
    if (auto own = share_.model->lora(); own != nullptr) {
      slots_ = std::make_shared<SlotsOfProcesses>(std::move(own), *share_.channel, is_speaking_);
    }
  }

  // Returns access to the caches of all ranks; null if no blocks are moved.
  std::unique_ptr<CacheBytes> MakeBytes() {
    if (share_.bytes == nullptr) return nullptr;
    return MakeJointCacheBytes(*share_.calls, *share_.channel, std::move(share_.bytes),
                               share_.block_shares, share_.state_shares, &is_speaking_);
  }

  Status Stage(const std::filesystem::path& folder) override {
    Drop();
    Status staged = CatchToResult([&] { return StageOnAll(folder); });
    if (!staged) {
      AwaitRest();
      Drop();
    }
    return staged;
  }
  Status StageFrom(const WeightStage& /*loaded*/) override {
    return Fail(ErrorCode::kInternal, "ranks in separate processes form one engine");
  }
  void Drop() override {
    share_.weights->Drop();
    if (!std::exchange(is_staged_, false)) return;
    try {
      Tell(StageOrder::kDrop, "").value();
    } catch (const std::exception& error) {
      LOG_DEBUG("models", "dropping the ranks' staged weights failed: {}", error.what());
    }
  }
  void Switch() override {
    const FairMutexLock lock(is_speaking_);
    share_.calls->Switch(*share_.channel);
    is_staged_ = false;
    share_.Switch();
  }

  ~LeadingModel() override {
    try {
      share_.channel->Close();
    } catch (const GroupError&) {  // NOLINT(bugprone-empty-catch)
      // If sending fails, the other ranks have ended, or will end without this message.
    }
  }

  void PrepareThread(const ThreadPool& pool) override { share_.model->PrepareThread(pool); }

  // Must not outlive this model.
  std::shared_ptr<LoraStore> lora() override { return slots_; }

  void Forward(ThreadPool& pool, const StepInput& input, KvCache& cache, float* logits) override {
    Begin(pool, input, cache, logits);
    Finish(pool);
  }
  int steps_in_flight() const override { return share_.model->steps_in_flight(); }
  void Begin(ThreadPool& pool, const StepInput& input, KvCache& cache, float* logits) override {
    const FairMutexLock lock(is_speaking_);
    LeadBegin(share_.all, *share_.channel, *share_.model, pool, input, cache, logits);
  }
  void Finish(ThreadPool& pool) override {
    const FairMutexLock lock(is_speaking_);
    LeadFinish(share_.all, *share_.channel, *share_.model, pool);
  }

  Status CheckAlive() override {
    const std::string reason = share_.all.failure();
    if (reason.empty()) return {};
    return Fail(ErrorCode::kUnavailable, reason);
  }

 private:
  Result<bool> Tell(StageOrder order, const std::string& folder) {
    const FairMutexLock lock(is_speaking_);
    return share_.channel->StageEverywhere(order, folder);
  }

  // Waits until no rank loads weights. If a rank had to drop its weights while it loads them, the
  // steps of all ranks would stop until it has loaded them.
  void AwaitRest() {
    if (!is_staged_) return;
    const Status ended = CatchToResult([this]() -> Status {
      while (true) {
        ASSIGN_OR_RETURN(const bool is_done, Tell(StageOrder::kRest, ""));
        if (is_done) return {};
        std::this_thread::sleep_for(kAskInterval);
      }
    });
    if (!ended)
      LOG_DEBUG("models", "waiting for the ranks' load of weights failed: {}",
                ended.error().message);
  }

  // All ranks load at the same time.
  Status StageOnAll(const std::filesystem::path& folder) {
    std::error_code failed;  // set if the current folder does not exist
    const std::filesystem::path absolute = std::filesystem::absolute(folder, failed);
    if (failed) {
      return Fail(ErrorCode::kUnavailable,
                  fmt::format("{}: {}", folder.string(), failed.message()));
    }
    is_staged_ = true;
    ASSIGN_OR_RETURN([[maybe_unused]] const bool has_begun,
                     Tell(StageOrder::kLoad, absolute.string()));
    RETURN_IF_ERROR(share_.weights->Begin(folder));
    while (true) {
      const Result<bool> own = share_.weights->IsDone();
      const Result<bool> others = Tell(StageOrder::kAsk, "");
      if (!own) {
        Error error = own.error();
        error.message = fmt::format("rank 0: {}", error.message);
        return tl::unexpected<Error>(std::move(error));
      }
      if (!others) return tl::unexpected(others.error());
      if (*own && *others) return {};
      std::this_thread::sleep_for(kAskInterval);
    }
  }

  // This mutex is fair, because steps follow each other without a pause. With an unfair one,
  // filling an adapter's slot could wait until there are no more steps.
  FairMutex is_speaking_;
  ProcessShare share_;
  bool is_staged_ = false;  // whether the other ranks have staged weights, or may have
  std::shared_ptr<LoraStore> slots_;
};

class RankProcess final : public RankProcessModel {
 public:
  RankProcess(const ModelConfig& config, ThreadPool& pool, ProcessShare share)
      : config_(config), pool_(pool), share_(std::move(share)) {}

  ParallelShare TakeLead() override {
    ParallelShare lead;
    lead.cache = std::move(share_.cache);
    auto model = std::make_unique<LeadingModel>(config_, std::move(share_));
    lead.bytes = model->MakeBytes();
    lead.stage = model.get();
    lead.model = std::move(model);
    return lead;
  }

  void Follow() override {
    const auto carry_out = [this](const RankCall& call, Model& share) -> Model& {
      return share_.calls->CarryOut(call, share, share_.bytes.get(),
                                    [this]() -> Model& { return share_.Switch(); });
    };
    FollowSteps(share_.all, *share_.channel, *share_.model, pool_, *share_.cache, carry_out);
  }

 private:
  const ModelConfig config_;
  ThreadPool& pool_;
  ProcessShare share_;
};

Status FillSlotOf(Model& model, int slot, const std::string& folder) {
  const std::shared_ptr<LoraStore> slots = model.lora();
  ASSIGN_OR_RETURN(const LoraAdapter adapter, LoraAdapter::Open(folder, slots->layout()));
  return slots->Fill(slot, adapter);
}

Result<bool> StageAsOrdered(ShareStage& weights, StageOrder order, const std::string& folder) {
  switch (order) {
    case StageOrder::kLoad: {
      RETURN_IF_ERROR(weights.Begin(folder));
      return true;
    }
    case StageOrder::kAsk: return weights.IsDone();
    case StageOrder::kRest: return weights.IsAtRest();
    case StageOrder::kDrop: weights.Drop(); break;
  }
  return true;
}

Status LoadProcessShare(ProcessShare& share, ThreadPool& pool, const std::filesystem::path& folder,
                        const ModelConfig& config, const ModelOptions& options,
                        const ParallelOptions& parallel, const LoadProgress& progress) {
  const RankPlace place =
      RankPlace::Of(share.all.rank(), parallel.tensor_size, parallel.num_stages);
  RETURN_IF_ERROR(CheckRanks(config.spec, parallel.tensor_size, parallel.num_stages));
  ASSIGN_OR_RETURN(const std::optional<Checkpoint> checkpoint,
                   OpenChecked(folder, config, options));
  if (place.tensor_size > 1)
    share.stage = share.all.Split(place.stage * place.tensor_size, place.tensor_size);
  ASSIGN_OR_RETURN(share.model,
                   LoadShare(pool, checkpoint ? &*checkpoint : nullptr, config, options, place,
                             {.all = &share.all, .stage = share.stage.get()}, progress));
  const DecoderSpec spec = ShareOf(config.spec, place);
  ASSIGN_OR_RETURN(
      KvCache cache,
      KvCache::Allocate(KvLayoutOf(spec, options),
                        ShareGroups(parallel.kv_groups, config.spec, place), parallel.num_blocks));
  RETURN_IF_ERROR(cache.AllocateStates(StateLayout::For(spec), options.state_slots));
  cache.Warm(pool);
  share.cache = std::make_unique<KvCache>(std::move(cache));
  if (parallel.moves_blocks) {
    ASSIGN_OR_RETURN(share.bytes, MakeCacheBytes(*share.cache, /*device=*/nullptr));
    share.block_shares = ShareBytes(CachePiece::kBlock, config.spec, options, parallel);
    share.state_shares = ShareBytes(CachePiece::kState, config.spec, options, parallel);
  }
  share.weights = std::make_unique<ShareStage>(
      config, options, place, RankGroups{.all = &share.all, .stage = share.stage.get()},
      pool.num_threads());
  share.channel = MakeMessageStepChannel(
      share.all, StepLimitsOf(options, parallel, config), share.model->steps_in_flight(),
      [model = share.model.get()](int slot, const auto& folder) {
        return FillSlotOf(*model, slot, folder);
      },
      [weights = share.weights.get()](StageOrder order, const std::string& folder) {
        return StageAsOrdered(*weights, order, folder);
      });
  share.calls = std::make_unique<RankCalls>(share.all);
  return {};
}

// Waits without a timeout, however long the slowest rank takes to load.
void WaitForAllRanks(Communicator& all) {
  for (int rank = 0; rank < all.size(); ++rank) {
    char is_ready = 1;
    all.Broadcast(&is_ready, sizeof(is_ready), rank, Patience::kIdle);
  }
}

}  // namespace

Result<std::unique_ptr<RankProcessModel>> RankProcessModel::Load(
    Communicator& all, ThreadPool& pool, const std::filesystem::path& folder,
    const ModelConfig& config, const ModelOptions& options, const ParallelOptions& parallel,
    const LoadProgress& progress) {
  ProcessShare share{.all = all,
                     .stage = {},
                     .channel = {},
                     .calls = {},
                     .cache = {},
                     .bytes = {},
                     .block_shares = {},
                     .state_shares = {},
                     .weights = {},
                     .model = {}};
  if (Status loaded = LoadProcessShare(share, pool, folder, config, options, parallel, progress);
      !loaded) {
    all.Fail(loaded.error().message);
    return tl::unexpected<Error>(std::move(loaded).error());
  }
  WaitForAllRanks(all);
  return std::make_unique<RankProcess>(config, pool, std::move(share));
}

}  // namespace sluice
