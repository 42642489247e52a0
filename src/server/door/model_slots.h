// The models behind a door: which are in memory, who waits for them, and how they come and go.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
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

// Where a model is on its way.
enum class ModelState {
  kOut,       // not in memory
  kPlanning,  // being downloaded and planned
  kQueued,    // waits for room
  kLoading,
  kLoaded,
  kLeaving,
  kFailed,  // not in memory, and why is known
};
std::string_view ModelStateName(
    ModelState state);  // "unloaded", "loading", "loaded", "failed", ...

// What is told of a model.
struct ModelFacts {
  int index = 0;
  const DoorModel* model = nullptr;
  const ApiKeys* keys = nullptr;
  ModelState state = ModelState::kOut;
  std::string error;                     // of kFailed
  int64_t done_bytes = 0;                // of kPlanning, while it is downloaded, and of kLoading
  int64_t total_bytes = 0;               // 0: not known
  int64_t bytes = 0;                     // that it takes of the budget
  std::optional<int64_t> max_model_len;  // of the last load
  bool has_chat = false, calls_tools = false;
  int64_t in_flight = 0, waiting = 0;
  uint64_t num_loads = 0, num_failures = 0, num_put_out = 0;
  std::shared_ptr<const ModelContext> context;  // of kLoaded; its engine lives as long as this
  const Metrics* metrics = nullptr;
};

// A request for a model that is not loaded waits while it is, within DoorConfig::wait_seconds; to
// make room, others are put out as Place() says: their engine is destroyed once no request is in
// flight. Each load has a thread of its own, so that a download or a load that hangs delays no
// other model but by the room that it takes. A load that fails is tried again for a request that
// comes DoorConfig::retry_seconds later; those before get its error.
//
// Thread safety: all methods may be called from any thread.
class ModelSlots {
 public:
  // `front` outlives it: how errors are written, and what the models share.
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
  // The place of the model that serves `name`, which may be an adapter; none: 404.
  std::optional<int> Find(std::string_view name) const;
  const DoorModel& model(int index) const;
  const ApiKeys& keys(int index) const;

  // Answers a request now, once the model is loaded, or with an error.
  void Answer(int index, HttpRequest request, std::shared_ptr<ResponseWriter> client);

  std::vector<ModelFacts> Facts() const;
  int64_t budget_bytes() const { return config_.budget_bytes; }
  // Lines for the log about what was computed since the last call.
  std::vector<std::string> ThroughputLines();

  // New requests, and those that wait, are answered 503; those in flight may finish.
  void BeginDrain();
  void BeginLeaving();
  // Nothing is in flight.
  bool IsDrained() const;
  // A load is in progress, which nothing ends early.
  bool IsLoading() const;
  // Ends what is in flight, and waits for loads in progress.
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
  // The budget's part that the slot takes, where it is loaded or on its way there.
  std::vector<PlacedModel> Placed() const REQUIRES(mutex_);
  // Whether no other model that waits for room goes before.
  bool IsNext(const Slot& slot) const REQUIRES(mutex_);
  // The requests that wait for a model that is loaded, counted as in flight. They are handed over
  // without the lock: answering one may lead to the next of its connection.
  std::deque<Waiting> TakeAdmitted(Slot& slot) REQUIRES(mutex_);
  static void HandOver(Slot& slot, std::deque<Waiting> admitted);
  void Refuse(const std::deque<Waiting>& refused, const ApiError& error) const;
  // Those that have waited too long; clients that have left are forgotten.
  std::deque<Waiting> TakeExpired(Slot& slot) REQUIRES(mutex_);
  ApiError WaitedTooLong(const Slot& slot) const REQUIRES(mutex_);
  // Wakes the keeper and the loads that wait for room.
  void Notify() REQUIRES(mutex_);
  void Keep();
  // Answers those that have waited too long, starts loads, and waits for a reason to look again.
  // False at the end.
  bool LookAtSlots();
  void StartLoad(Slot& slot) REQUIRES(mutex_);

  // On the thread of a load.
  void RunLoad(Slot& slot);
  void LoadAndTell(Slot& slot);
  Status LoadSlot(Slot& slot);
  // True once the slot's bytes are reserved; false where nobody waits for it any more.
  Result<bool> MakeRoom(Slot& slot, int64_t bytes);
  // One look at the models: true or false as MakeRoom(), none where it has to look again, after
  // `leaving`, if not null, was put out, and models of `close` have left.
  Result<std::optional<bool>> TakeRoom(Slot& slot, Placement& placement, Slot*& leaving)
      REQUIRES(mutex_);
  Status Fill(Slot& slot);
  void PutOut(Slot& slot);
  // Lets models that take no requests for the sake of `slot`, `but` for some, take them again; what
  // is to be handed over.
  using Admitted = std::vector<std::pair<Slot*, std::deque<Waiting>>>;
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
  // As they were made; what changes in them is guarded by mutex_.
  std::vector<std::unique_ptr<Slot>> slots_;
  std::map<std::string, int, std::less<>> names_;  // as it was made
  uint64_t num_queued_ GUARDED_BY(mutex_) = 0;
  bool draining_ GUARDED_BY(mutex_) = false;
  bool leaving_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;
  bool changed_ GUARDED_BY(mutex_) = false;  // since the keeper looked at the slots
  std::thread keeper_;                       // last: it uses all of the above
};

}  // namespace sluice
