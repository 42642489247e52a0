// The engine's thread, and its queue of commands.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <variant>
#include <vector>

#include "base/mutex.h"
#include "base/thread_pool.h"
#include "device/device.h"
#include "device/device_pool.h"
#include "engine/adapters.h"
#include "engine/engine.h"
#include "engine/engine_core.h"
#include "engine/engine_plan.h"
#include "engine/kv_tiers.h"
#include "models/cache_bytes.h"
#include "models/dense_layers.h"
#include "models/kv_cache.h"
#include "models/model.h"
#include "models/weight_stage.h"

namespace sluice {

// Ownership: owns everything that the engine needs. A member is destroyed after the members that
// use it.
class EngineLoop final : public Engine {
 public:
  struct Parts {
    std::unique_ptr<CacheListener> listener;       // for events of the prefix cache; may be null
    EngineJournal* journal = nullptr;              // outlives the engine; may be null
    DiskTiers disks;                               // shared by several engines
    std::vector<std::unique_ptr<Device>> devices;  // by rank; empty: the CPU
    std::unique_ptr<DevicePool> device_pool;       // memory of a single device
    std::unique_ptr<ThreadPool> pool;
    std::unique_ptr<Model> model;
    std::unique_ptr<Model> draft;  // model of plan.draft; null: there is none
    void* draft_cache = nullptr;   // on a device: memory of the draft's cache, in device_pool
    // Image tower of plan.tower; null: prompts may not hold images.
    std::unique_ptr<ImageTower> tower;
    std::unique_ptr<KvCache> cache;
    WeightStage* stage = nullptr;  // part of a model of several ranks; otherwise null
    // The caches of all ranks, if several ranks compute the model and blocks are moved; otherwise
    // null.
    std::unique_ptr<CacheBytes> cache_bytes;
    // The layers of plan.pooling, shared by engines that share weights; null if there are none.
    std::shared_ptr<const DenseLayers> dense;
    // The registered LoRA adapters; those in memory are in the model's slots. Shared by engines
    // that share the model; null: no adapters are served.
    std::shared_ptr<Adapters> adapters;
  };
  // Reloads parts of an engine. Each function uses the pool and the devices of the Parts passed to
  // it.
  struct Loader {
    // Loads the weights; for ranks and devices also allocates the cache.
    std::function<Status(const std::filesystem::path& folder, Parts& parts)> load_weights;
    // Allocates the parts of the cache that are missing.
    std::function<Status(Parts& parts)> load_cache;
    // Loads a model while the old one stays in use, on its own threads; null: not possible.
    std::function<Result<std::unique_ptr<Model>>(const std::filesystem::path& folder)> load_model;
    // Like load_model, for a model of several ranks: stages the new weights on all ranks.
    std::function<Status(WeightStage& own, const std::filesystem::path& folder)> stage;
  };

  // `observer` may be null. `loader`: reloads parts; nullopt: they cannot be reloaded.
  static Result<std::unique_ptr<Engine>> Start(Parts parts, EngineInfo info, EnginePlan plan,
                                               EngineObserver* observer,
                                               std::optional<Loader> loader = std::nullopt);
  ~EngineLoop() override;

  const EngineInfo& info() const override { return info_; }
  Result<RequestHandle> Submit(Request request) override;
  void Abort(RequestHandle handle) override;
  void StopSequence(RequestHandle handle, int sequence) override;
  bool healthy() const override;
  std::string failure() const override;
  bool stalled() const override;
  int64_t num_unfinished() const override;
  void BeginShutdown() override;
  Adapters* adapters() override { return parts_.adapters.get(); }
  bool ResetPrefixCache() override;
  void ResetImageRows() override;
  Status SetFrozen(bool frozen) override;
  Status Sleep(bool drops_files) override;
  Status WakeUp(bool weights, bool cache) override;
  Residency residency() const override;
  Status StageWeights(const std::filesystem::path& folder) override;
  Status CommitWeights() override;
  void DropStagedWeights() override;
  std::filesystem::path weights_folder() const override;
  CacheEventCounts cache_event_counts() const override {
    return parts_.listener == nullptr ? CacheEventCounts() : parts_.listener->counts();
  }
  TierCounts tier_counts() const override {
    return TierCountsOf(plan_, tier_counters_, parts_.disks);
  }

 private:
  struct AddCommand {
    std::unique_ptr<ActiveRequest> request;
  };
  struct AbortCommand {
    RequestHandle handle;
  };
  struct StopCommand {
    RequestHandle handle;
    int sequence;
  };
  struct ResetCommand {
    std::promise<bool> done;
  };
  // Something that the engine's thread runs between two steps.
  struct CallCommand {
    std::function<Status()> call;
    std::promise<Status> done;
  };
  using Command = std::variant<AddCommand, AbortCommand, StopCommand, ResetCommand, CallCommand>;
  // The quantities that LoopLimits limits.
  struct Load {
    int64_t requests = 0, sequences = 0, tokens = 0;
  };
  static Load LoadOf(const Request& request);

  EngineLoop(Parts parts, EngineInfo info, EnginePlan plan, EngineObserver* observer,
             std::optional<Loader> loader);
  RequestLimits Limits() const;
  Status MakeCore();
  bool replays() const { return parts_.journal != nullptr && parts_.journal->replays(); }
  // Lets the journal run the replay on this thread.
  void RunReplay();
  // Runs `call` on the engine's thread and waits until it has returned.
  Status CallOnThread(std::function<Status()> call);
  Status FallAsleep(bool drops_files);
  Status LoadParts(bool weights, bool cache);
  // Replaces the weights and the cache by those in `made`, if it has them.
  void TakeParts(Parts& made);
  Status StageInRanks(const std::filesystem::path& folder);
  Status UseStaged();
  // Drops the staged weights in all ranks. Returns those of this rank, which must be destroyed
  // without the lock.
  std::unique_ptr<Model> TakeStaged() REQUIRES(staging_mutex_);
  // Makes the disk tier use the blocks that belong to the weights in `folder`.
  void UseDiskOf(const std::filesystem::path& folder);
  // Call after switching to the weights in `folder`. Calls UseDiskOf once all engines that share
  // the disk have switched; until then the disk tier is off.
  void SwitchDiskTo(const std::filesystem::path& folder);
  Status ModelAlive() const;
  bool has_work() const { return core_ != nullptr && core_->has_work(); }
  // Counts a request as unfinished, or refuses it if a limit is reached.
  Result<RequestHandle> Reserve(const Load& load, bool was_accepted);
  void Release(const Load& load);
  void Run();
  // Waits until there is something to do, then takes the queue. False when the engine stops.
  bool TakeCommands(std::vector<Command>& taken);
  void Execute(Command& command);
  // Runs a step. If it throws, fails all requests, since any of them may be in an inconsistent
  // state.
  void Step();
  void FailAll(const std::string& reason);
  // Queues a command. Returns false and drops it once the engine stops.
  bool Push(Command command);
  void OnEnd(const ActiveRequest& request);
  void NoteProgress();
  void CheckIdle();
  void OnFailedStep();

  Parts parts_;
  const EngineInfo info_;
  const EnginePlan plan_;
  EngineObserver* const observer_;
  const std::optional<Loader> loader_;
  KvTierCounters tier_counters_;
  // Used on the engine's thread. Null while weights or cache are not in memory; tiers_ also if
  // evicted blocks are lost.
  std::unique_ptr<KvTiers> tiers_;
  std::unique_ptr<EngineCore> core_;
  uint64_t base_seed_ = 0;
  const ImageHasher image_hasher_;

  // Held while parts_.model is replaced. Only the engine's thread replaces it.
  mutable Mutex model_mutex_;

  mutable Mutex staging_mutex_;
  std::unique_ptr<Model> staged_ GUARDED_BY(staging_mutex_);
  std::filesystem::path staged_folder_ GUARDED_BY(staging_mutex_);  // "": nothing is staged
  std::filesystem::path folder_ GUARDED_BY(staging_mutex_);         // folder of the weights in use
  // Parts::stage; null also while the model is not in memory.
  WeightStage* stage_ GUARDED_BY(staging_mutex_);
  // Whether weights are being staged in all ranks. If so, the model must stay in memory.
  bool is_staging_ GUARDED_BY(staging_mutex_) = false;
  // Used on the engine's thread: number of times the weights were replaced.
  int64_t num_replaced_ = 0;

  mutable Mutex mutex_;
  CondVar wake_;
  // At most max_unfinished requests, and a few commands per request.
  std::vector<Command> queue_ GUARDED_BY(mutex_);
  Load unfinished_ GUARDED_BY(mutex_);
  uint64_t next_handle_ GUARDED_BY(mutex_) = 1;
  bool shutting_down_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;
  bool frozen_ GUARDED_BY(mutex_) = false;
  Residency residency_ GUARDED_BY(mutex_);

  // Used on the engine's thread: whether the engine could run steps (was not frozen) when last
  // checked.
  bool may_step_ = true;
  std::atomic<int64_t> drain_deadline_{0};  // ticks of Clock; 0: none
  std::atomic<int64_t> last_progress_{0};   // ticks of Clock
  std::atomic<bool> idle_{true};
  std::atomic<int> failed_steps_{0};  // number of consecutive failed steps
  std::atomic<bool> broken_{false};   // block accounting is inconsistent, or a device is lost
  std::atomic<bool> is_model_lost_{false};
  std::atomic<bool> is_state_lost_{false};  // EngineCore::FailAll failed

  std::thread thread_;  // last member, because it uses all members above
};

}  // namespace sluice
