// The engine's thread, and the queue that leads to it.
#pragma once

#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
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
#include "models/dense_layers.h"
#include "models/kv_cache.h"
#include "models/model.h"

namespace sluice {

// Ownership: owns everything that the engine needs; members are destroyed in the reverse order of
// their use.
class EngineLoop final : public Engine {
 public:
  struct Parts {
    std::vector<std::unique_ptr<Device>> devices;  // by rank; none: the CPU
    std::unique_ptr<DevicePool> device_pool;       // memory of the one device
    std::unique_ptr<ThreadPool> pool;
    std::unique_ptr<Model> model;
    std::unique_ptr<Model> draft;  // of plan.draft; null: no model proposes tokens
    std::unique_ptr<KvCache> cache;
    // Of plan.pooling, of all engines that share the weights; null where it has none.
    std::shared_ptr<const DenseLayers> dense;
    // In the model's slots, of all engines that share it; null: none are served.
    std::shared_ptr<Adapters> adapters;
  };
  // `observer` may be null.
  static Result<std::unique_ptr<Engine>> Start(Parts parts, EngineInfo info, EnginePlan plan,
                                               EngineObserver* observer);
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
  using Command = std::variant<AddCommand, AbortCommand, StopCommand, ResetCommand>;
  // What LoopLimits bounds.
  struct Load {
    int64_t requests = 0, sequences = 0, tokens = 0;
  };
  static Load LoadOf(const Request& request);

  EngineLoop(Parts parts, EngineInfo info, EnginePlan plan);
  // Counts a request as unfinished, or refuses it.
  Result<RequestHandle> Reserve(const Load& load, bool was_accepted);
  void Release(const Load& load);
  void Run();
  // Waits until there is something to do, then takes the queue. False when the engine ends.
  bool TakeCommands(std::vector<Command>& taken);
  void Execute(Command& command);
  // False once the engine stops: the command is dropped then.
  bool Push(Command command);
  void OnEnd(const ActiveRequest& request);
  void NoteProgress();
  void CheckIdle();
  void OnFailedStep();

  Parts parts_;
  const EngineInfo info_;
  const EnginePlan plan_;
  std::unique_ptr<EngineCore> core_;
  uint64_t base_seed_ = 0;

  mutable Mutex mutex_;
  CondVar wake_;
  // Bounded by max_unfinished and a few commands a request.
  std::vector<Command> queue_ GUARDED_BY(mutex_);
  Load unfinished_ GUARDED_BY(mutex_);
  uint64_t next_handle_ GUARDED_BY(mutex_) = 1;
  bool shutting_down_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;

  std::atomic<int64_t> drain_deadline_{0};  // ticks of Clock; 0: none
  std::atomic<int64_t> last_progress_{0};   // ticks of Clock
  std::atomic<bool> idle_{true};
  std::atomic<int> failed_steps_{0};  // in a row
  std::atomic<bool> broken_{false};   // block accounting is inconsistent, or the device is lost
  std::atomic<bool> is_model_lost_{false};

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace sluice
