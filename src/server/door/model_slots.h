// The models of a DoorServer: which of them are in memory, which requests wait for them, and how
// they are loaded and unloaded.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "server/api/dispatcher.h"
#include "server/api/guard/api_keys.h"
#include "server/door/door_model.h"
#include "server/door/flight_writer.h"
#include "server/door/placement.h"
#include "server/metrics.h"
#include "server/request_memory.h"

namespace sluice {

// State of a model.
enum class ModelState {
  kOut,       // not in memory
  kPlanning,  // being downloaded and planned
  kQueued,    // waits for memory
  kLoading,
  kLoaded,
  kLeaving,
  kFailed,  // not in memory; the last load failed
};
std::string_view ModelStateName(
    ModelState state);  // returns "unloaded", "loading", "loaded", "failed", ...

// The facts about a model that answers and metrics show.
struct ModelFacts {
  int index = 0;
  const DoorModel* model = nullptr;
  const ApiKeys* keys = nullptr;
  ModelState state = ModelState::kOut;
  std::string error;                     // only for kFailed
  int64_t done_bytes = 0;                // progress of the download in kPlanning, of the load in
                                         // kLoading
  int64_t total_bytes = 0;               // 0: unknown
  int64_t bytes = 0;                     // the part of the budget that it takes
  std::optional<int64_t> max_model_len;  // as of the last load
  bool has_chat = false, calls_tools = false;
  int64_t in_flight = 0, waiting = 0;
  uint64_t num_loads = 0, num_failures = 0, num_put_out = 0;
  std::shared_ptr<const ModelContext> context;  // null if the model is not in memory; the engine
                                                // lives as long as this pointer
  const Metrics* metrics = nullptr;
};

// A request for a model that is not loaded waits until it is, at most DoorConfig::wait_seconds. To
// make room, other models are unloaded as Place() decides; an engine is destroyed once none of its
// requests is in flight. Each load has its own thread. So a download or load that hangs delays
// other models only if they need the memory that it holds. After a failed load, requests get its
// error for DoorConfig::retry_seconds; a later request starts another load.
//
// Thread safety: all methods may be called from any thread.
class ModelSlots {
 public:
  // `front` writes errors and holds the state that models share; it must outlive this object.
  ModelSlots(const DoorConfig& config, std::vector<DoorModel> models,
             std::vector<std::shared_ptr<ApiKeys>> keys, const Dispatcher* front,
             std::shared_ptr<SpanExporter> exporter, std::shared_ptr<RequestMemory> memory);
  ~ModelSlots();
  ModelSlots(const ModelSlots&) = delete;
  ModelSlots& operator=(const ModelSlots&) = delete;

  // Begins to load the pinned models.
  void Start();
  // Whether each pinned model is loaded or has failed once.
  bool IsReady() const;
  // Returns the index of the model that serves `name`, which may be an adapter; nullopt if none
  // does.
  std::optional<int> Find(std::string_view name) const;
  const DoorModel& model(int index) const;
  const ApiKeys& keys(int index) const;

  // Answers a request now if the model is loaded; otherwise once it is, or with an error.
  void Answer(int index, HttpRequest request, std::shared_ptr<ResponseWriter> client);

  std::vector<ModelFacts> Facts() const;
  int64_t budget_bytes() const { return config_.budget_bytes; }
  // Returns log lines about the throughput since the last call.
  std::vector<std::string> ThroughputLines();

  // Answers new and waiting requests with 503. Those in flight may finish.
  void BeginDrain();
  void BeginLeaving();
  // Whether no request is in flight.
  bool IsDrained() const;
  // Whether a load is in progress. A load cannot be interrupted.
  bool IsLoading() const;
  // Aborts the requests in flight and waits for loads in progress.
  void Stop();

 private:
  using Clock = std::chrono::steady_clock;
  struct Waiting {
    HttpRequest request;
    std::shared_ptr<ResponseWriter> client;
    Clock::time_point deadline;
  };
  struct Slot;

  bool IsBusy(const Slot& slot) const REQUIRES(mutex_);
  // Returns the models that take a part of the budget, including those being loaded or unloaded and
  // those for which others are being unloaded.
  std::vector<PlacedModel> Placed() const REQUIRES(mutex_);
  // Whether the slot is first among the models that wait for memory.
  bool IsNext(const Slot& slot) const REQUIRES(mutex_);
  // Takes the waiting requests of a loaded model and counts them as in flight. HandOver() is called
  // without the lock, because answering a request may start the next one on its connection.
  std::vector<Waiting> TakeAdmitted(Slot& slot) REQUIRES(mutex_);
  static void HandOver(Slot& slot, std::vector<Waiting> admitted);
  void Refuse(const std::vector<Waiting>& refused, const ApiError& error) const;
  // Takes the requests that have waited too long, and drops those whose clients have disconnected.
  std::vector<Waiting> TakeExpired(Slot& slot) REQUIRES(mutex_);
  // Returns the state to show. A model that is closed to requests, so that another can be loaded,
  // is shown as leaving.
  static ModelState StateOf(const Slot& slot);
  ApiError WaitedTooLong(const Slot& slot) const REQUIRES(mutex_);
  // Wakes the keeper and the loads that wait for memory.
  void Notify() REQUIRES(mutex_);
  void Keep();
  // Refuses requests that have waited too long, starts loads, and waits until there is something to
  // do. Returns false when the server stops.
  bool LookAtSlots();
  void StartLoad(Slot& slot) REQUIRES(mutex_);

  // Called on the thread of a load.
  void RunLoad(Slot& slot);
  void LoadAndTell(Slot& slot);
  Status LoadSlot(Slot& slot);
  // Waits until the slot's bytes are reserved and returns true; returns false if no request waits
  // for the model.
  Result<bool> MakeRoom(Slot& slot, int64_t bytes);
  // One attempt of MakeRoom(). Returns its result, or nullopt if it must be repeated, after
  // unloading `leaving` if that is not null. Models in `placement.close` take no requests
  // meanwhile.
  Result<std::optional<bool>> TakeRoom(Slot& slot, Placement& placement, Slot*& leaving)
      REQUIRES(mutex_);
  Status Fill(Slot& slot);
  void PutOut(Slot& slot);
  // Reopens the models that were closed to requests to make room for `slot`, except those in `but`.
  // Returns the requests to hand over.
  using Admitted = std::vector<std::pair<Slot*, std::vector<Waiting>>>;
  Admitted Reopen(const Slot& slot, const std::vector<int>& but) REQUIRES(mutex_);
  static void HandOver(Admitted admitted);
  void CountRequestMemory() REQUIRES(mutex_);

  const DoorConfig config_;
  const Dispatcher* const front_;
  const std::shared_ptr<SpanExporter> exporter_;
  const std::shared_ptr<RequestMemory> memory_;
  const int64_t base_request_bytes_;

  mutable Mutex mutex_;
  CondVar wake_;
  // The pointers are constant after construction. mutex_ guards changes inside slots.
  std::vector<std::unique_ptr<Slot>> slots_;
  std::map<std::string, int, std::less<>> names_;  // constant after construction
  uint64_t num_queued_ GUARDED_BY(mutex_) = 0;
  bool draining_ GUARDED_BY(mutex_) = false;
  bool leaving_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;
  bool changed_ GUARDED_BY(mutex_) = false;  // whether slots changed since the keeper last looked
                                             // at them
  std::thread keeper_;                       // last member, because it uses all of the above
};

}  // namespace sluice
