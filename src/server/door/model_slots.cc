#include "server/door/model_slots.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/firewall.h"
#include "base/log.h"
#include "base/process_memory.h"
#include "engine/adapters.h"
#include "engine/plan_text.h"

namespace sluice {
namespace {

// The interval at which a load checks whether busy models have become idle.
constexpr std::chrono::milliseconds kLookForRoom(20);
// The interval at which the keeper thread checks whether waiting clients have disconnected.
constexpr std::chrono::milliseconds kLookForClients(250);
// Maximum wait until answered requests release a model that is being unloaded.
constexpr std::chrono::seconds kTimeToLetGo(10);
constexpr std::chrono::milliseconds kLookForHolders(2);

ApiError LoadFailed(const std::string& name, const Error& error, double retry_seconds) {
  const bool may_pass =
      error.code == ErrorCode::kResourceExhausted || error.code == ErrorCode::kUnavailable;
  ApiError answer =
      ServiceUnavailable(fmt::format("The model `{}` cannot be loaded: {}", name, error.message));
  answer.retry_after = std::max<int64_t>(1, static_cast<int64_t>(retry_seconds) + 1);
  if (!may_pass) {
    answer.status = 500;
    answer.type = "InternalServerError";
  }
  return answer;
}

std::chrono::steady_clock::duration AsDuration(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(seconds));
}

}  // namespace

std::string_view ModelStateName(ModelState state) {
  switch (state) {
    case ModelState::kOut: return "unloaded";
    case ModelState::kPlanning: return "planning";
    case ModelState::kQueued: return "waiting for memory";
    case ModelState::kLoading: return "loading";
    case ModelState::kLoaded: return "loaded";
    case ModelState::kLeaving: return "unloading";
    case ModelState::kFailed: return "failed";
  }
  return "";
}

struct ModelSlots::Slot {
  int index = 0;
  DoorModel model;
  std::shared_ptr<ApiKeys> keys;
  const std::shared_ptr<Flights> flights = std::make_shared<Flights>();
  Metrics metrics;
  std::unique_ptr<Dispatcher> dispatcher;  // created by the first load, then kept
  std::unique_ptr<Engine> engine;

  ModelState state = ModelState::kOut;
  bool is_wanted = false;            // whether to load the model even if no request waits for it
  bool was_tried = false;            // whether it was loaded, or has failed, at least once
  const Slot* closed_for = nullptr;  // kLoaded: the slot for which this one is closed to requests
                                     // and will be unloaded
  std::vector<Waiting> waiting;      // a vector, because moving a deque allocates
  int64_t bytes = 0;                 // the part of the budget that it takes; 0: none
  int64_t needed = 0;                // kQueued: number of bytes that it waits for
  // kQueued: number of bytes of the budget that no other model may take, because models are being
  // unloaded for this one; otherwise 0.
  int64_t reserved = 0;
  uint64_t queue_number = 0;
  int64_t done_bytes = 0, total_bytes = 0;
  Error error;
  Clock::time_point failed_at, loaded_at;
  Clock::duration load_time{};
  std::optional<int64_t> max_model_len;
  bool has_chat = false, calls_tools = false;
  int64_t request_bytes = 0;
  uint64_t num_loads = 0, num_failures = 0, num_put_out = 0;
  bool thread_is_over = true;
  std::thread thread;
};

ModelSlots::ModelSlots(const DoorConfig& config, std::vector<DoorModel> models,
                       std::vector<std::shared_ptr<ApiKeys>> keys, const Dispatcher* front,
                       std::shared_ptr<SpanExporter> exporter,
                       std::shared_ptr<RequestMemory> memory)
    : config_(config),
      front_(front),
      exporter_(std::move(exporter)),
      memory_(std::move(memory)),
      base_request_bytes_(static_cast<int64_t>(memory_->capacity())) {
  memory_->SetPlanned(memory_->capacity());
  for (size_t i = 0; i < models.size(); ++i) {
    auto slot = std::make_unique<Slot>();
    slot->index = static_cast<int>(i);
    slot->model = std::move(models[i]);
    slot->keys = std::move(keys[i]);
    names_[slot->model.name] = slot->index;
    slots_.push_back(std::move(slot));
  }
  for (const auto& slot : slots_) {
    for (const std::string& adapter : slot->model.adapters)
      names_.try_emplace(adapter, slot->index);
  }
  keeper_ = StartThread("models", [this] { Keep(); });
}

ModelSlots::~ModelSlots() {
  Stop();
}

void ModelSlots::Start() {
  const MutexLock lock(mutex_);
  for (const auto& slot : slots_) slot->is_wanted = slot->model.is_pinned;
  Notify();
}

bool ModelSlots::IsReady() const {
  const MutexLock lock(mutex_);
  return std::all_of(slots_.begin(), slots_.end(),
                     [](const auto& slot) { return !slot->model.is_pinned || slot->was_tried; });
}

std::optional<int> ModelSlots::Find(std::string_view name) const {
  auto found = names_.find(name);
  if (found == names_.end() && name.ends_with('/'))
    found = names_.find(name.substr(0, name.size() - 1));
  if (found != names_.end()) return found->second;
  // Includes adapters that were added while the server runs.
  for (const ModelFacts& facts : Facts()) {
    if (facts.context == nullptr) continue;
    const Adapters* const adapters = facts.context->engine->adapters();
    if (adapters != nullptr && adapters->Has(name)) return facts.index;
  }
  return std::nullopt;
}

const DoorModel& ModelSlots::model(int index) const {
  return slots_[static_cast<size_t>(index)]->model;
}

const ApiKeys& ModelSlots::keys(int index) const {
  return *slots_[static_cast<size_t>(index)]->keys;
}

void ModelSlots::Answer(int index, HttpRequest request, std::shared_ptr<ResponseWriter> client) {
  Slot& slot = *slots_[static_cast<size_t>(index)];
  const auto refuse = [&](const ApiError& error) {
    client->Send(front_->ErrorOf(front_->WithoutRoot(request.path), error));
  };
  MutexLock lock(mutex_);
  if (draining_) {
    lock.Unlock();
    return refuse(ServiceUnavailable(kServerIsShuttingDown));
  }
  if (slot.state == ModelState::kLoaded && slot.closed_for == nullptr) {
    auto writer = std::make_shared<FlightWriter>(std::move(client), slot.flights);
    lock.Unlock();
    return slot.dispatcher->Handle(std::move(request), std::move(writer));
  }
  const auto now = Clock::now();
  if (slot.state == ModelState::kFailed &&
      now - slot.failed_at < AsDuration(config_.retry_seconds)) {
    const double rest =
        config_.retry_seconds - std::chrono::duration<double>(now - slot.failed_at).count();
    const ApiError error = LoadFailed(slot.model.name, slot.error, rest);
    lock.Unlock();
    return refuse(error);
  }
  if (std::ssize(slot.waiting) >= config_.max_waiting) {
    ApiError error = ServiceUnavailable(
        fmt::format("{} requests wait for the model `{}` to be loaded, which is the limit; try "
                    "again later.",
                    slot.waiting.size(), slot.model.name));
    lock.Unlock();
    return refuse(error);
  }
  // With callbacks set, the connection notices when a client disconnects.
  client->SetCallbacks([] {}, [] {});
  slot.waiting.push_back(
      {std::move(request), std::move(client), now + AsDuration(config_.wait_seconds)});
  Notify();
}

void ModelSlots::Refuse(const std::vector<Waiting>& refused, const ApiError& error) const {
  for (const Waiting& waiting : refused)
    waiting.client->Send(front_->ErrorOf(front_->WithoutRoot(waiting.request.path), error));
}

std::vector<ModelSlots::Waiting> ModelSlots::TakeAdmitted(Slot& slot) {
  // Allocates all writers first: if that fails, all requests remain in the queue.
  std::vector<std::shared_ptr<ResponseWriter>> writers;
  writers.reserve(slot.waiting.size());
  for (const Waiting& waiting : slot.waiting)
    writers.push_back(std::make_shared<FlightWriter>(waiting.client, slot.flights));
  std::vector<Waiting> admitted = std::exchange(slot.waiting, {});
  for (size_t i = 0; i < admitted.size(); ++i) admitted[i].client = std::move(writers[i]);
  return admitted;
}

void ModelSlots::HandOver(Slot& slot, std::vector<Waiting> admitted) {
  for (Waiting& waiting : admitted) {
    if (waiting.client->closed()) continue;
    RunGuarded("models", "to hand over a request", [&] {
      slot.dispatcher->Handle(std::move(waiting.request), std::move(waiting.client));
    });
  }
}

void ModelSlots::HandOver(Admitted admitted) {
  for (auto& [slot, waiting] : admitted) HandOver(*slot, std::move(waiting));
}

std::vector<ModelSlots::Waiting> ModelSlots::TakeExpired(Slot& slot) {
  std::erase_if(slot.waiting, [](const Waiting& waiting) { return waiting.client->closed(); });
  const auto now = Clock::now();
  const auto end = std::find_if(slot.waiting.begin(), slot.waiting.end(),
                                [&](const Waiting& waiting) { return waiting.deadline > now; });
  std::vector<Waiting> expired(std::make_move_iterator(slot.waiting.begin()),
                               std::make_move_iterator(end));
  slot.waiting.erase(slot.waiting.begin(), end);
  return expired;
}

ModelState ModelSlots::StateOf(const Slot& slot) {
  return slot.closed_for == nullptr ? slot.state : ModelState::kLeaving;
}

ApiError ModelSlots::WaitedTooLong(const Slot& slot) const {
  return ServiceUnavailable(
      fmt::format("The model `{}` was not loaded within {} s (it is {}); try again later.",
                  slot.model.name, config_.wait_seconds, ModelStateName(StateOf(slot))));
}

void ModelSlots::Notify() {
  changed_ = true;
  wake_.NotifyAll();
}

void ModelSlots::Keep() {
  bool goes_on = true;
  while (goes_on) {
    if (!RunGuarded("models", "to look after waiting requests", [&] { goes_on = LookAtSlots(); }))
      std::this_thread::sleep_for(kLookForClients);
  }
}

bool ModelSlots::LookAtSlots() {
  std::vector<std::pair<std::vector<Waiting>, ApiError>> expired;
  Admitted admitted;
  {
    MutexLock lock(mutex_);
    expired.reserve(slots_.size());
    admitted.reserve(slots_.size());
    changed_ = false;
    std::optional<Clock::time_point> next;
    for (const auto& slot : slots_) {
      if (std::vector<Waiting> waiting = TakeExpired(*slot); !waiting.empty())
        expired.emplace_back(std::move(waiting), WaitedTooLong(*slot));
      // Requests still wait if there was no memory to admit them when the model was loaded.
      if (StateOf(*slot) == ModelState::kLoaded && !slot->waiting.empty())
        admitted.emplace_back(slot.get(), TakeAdmitted(*slot));
      const bool is_out = slot->state == ModelState::kOut || slot->state == ModelState::kFailed;
      if (is_out && slot->thread_is_over && !draining_ &&
          (slot->is_wanted || !slot->waiting.empty())) {
        StartLoad(*slot);
      }
      if (slot->waiting.empty()) continue;
      const auto again = std::min(slot->waiting.front().deadline, Clock::now() + kLookForClients);
      next = std::min(next.value_or(again), again);
    }
    if (expired.empty() && admitted.empty() && !changed_ && !stopping_) {
      if (next) {
        wake_.WaitUntil(lock, *next);
      } else {
        wake_.Wait(lock);
      }
    }
    if (stopping_) return false;
  }
  HandOver(std::move(admitted));
  for (const auto& [waiting, error] : expired) Refuse(waiting, error);
  return true;
}

void ModelSlots::StartLoad(Slot& slot) {
  if (slot.thread.joinable()) slot.thread.join();  // the thread has ended
  slot.state = ModelState::kPlanning;
  slot.is_wanted = false;
  slot.thread_is_over = false;
  slot.done_bytes = slot.total_bytes = 0;
  const auto started = CatchToResult([&]() -> Status {
    slot.thread = StartThread("load-model", [this, &slot] { RunLoad(slot); });
    return {};
  });
  if (started) return;
  LOG_ERROR("models", "{}: cannot start a thread to load it: {}", slot.model.name,
            started.error().message);
  slot.state = ModelState::kFailed;
  slot.was_tried = slot.thread_is_over = true;
  slot.error = started.error();
  slot.failed_at = Clock::now();
}

void ModelSlots::RunLoad(Slot& slot) {
  RunGuarded("models", "a load", [&] { LoadAndTell(slot); });
  const MutexLock lock(mutex_);
  slot.thread_is_over = true;
  Notify();
}

// If this throws, the slot's state already reflects the finished load.
void ModelSlots::LoadAndTell(Slot& slot) {
  Status status = CatchToResult([&] { return LoadSlot(slot); });
  std::vector<Waiting> refused;
  Admitted reopened;
  {
    const MutexLock lock(mutex_);
    if (!status) {
      slot.state = ModelState::kFailed;
      slot.error = std::move(status.error());
      slot.failed_at = Clock::now();
      slot.bytes = slot.reserved = 0;
      ++slot.num_failures;
      refused = std::exchange(slot.waiting, {});
    }
    slot.was_tried = true;
    RunGuarded("models", "to reopen models",
               [&]() REQUIRES(mutex_) { reopened = Reopen(slot, {}); });
    if (!status && !stopping_)
      LOG_ERROR("models", "{} cannot be loaded: {}", slot.model.name, slot.error.message);
  }
  // The error is read without the lock, because only this thread and the next load change it.
  if (!status) Refuse(refused, LoadFailed(slot.model.name, slot.error, config_.retry_seconds));
  HandOver(std::move(reopened));
}

Status ModelSlots::LoadSlot(Slot& slot) {
  const auto progress = [this, &slot](int64_t done, int64_t total) {
    const MutexLock lock(mutex_);
    slot.done_bytes = done;
    slot.total_bytes = total;
  };
  ASSIGN_OR_RETURN(const int64_t bytes, slot.model.loader->Plan(progress));
  ASSIGN_OR_RETURN(const bool has_room, MakeRoom(slot, bytes));
  return has_room ? Fill(slot) : Status();
}

bool ModelSlots::IsBusy(const Slot& slot) const {
  return slot.flights->count > 0 ||
         (slot.dispatcher != nullptr && slot.dispatcher->num_pending() > 0) ||
         (slot.engine != nullptr && slot.engine->num_unfinished() > 0);
}

std::vector<PlacedModel> ModelSlots::Placed() const {
  std::vector<PlacedModel> placed;
  const auto now = Clock::now();
  for (const auto& slot : slots_) {
    const int64_t bytes = slot->bytes + slot->reserved;
    if (bytes == 0) continue;
    const bool is_settled = slot->state == ModelState::kLoaded;
    placed.push_back({.model = slot->index,
                      .bytes = bytes,
                      .is_pinned = slot->model.is_pinned,
                      .priority = slot->model.priority,
                      .is_settled = is_settled,
                      .is_busy = is_settled && IsBusy(*slot),
                      // A model keeps its place for as long as it took to load. So loading takes
                      // at most half of the time when models take turns.
                      .had_a_turn = now - slot->loaded_at >= slot->load_time,
                      .last_used = slot->flights->last_change});
  }
  return placed;
}

bool ModelSlots::IsNext(const Slot& slot) const {
  return std::none_of(slots_.begin(), slots_.end(), [&](const auto& other) {
    if (other.get() == &slot || other->state != ModelState::kQueued) return false;
    if (other->model.priority != slot.model.priority)
      return other->model.priority > slot.model.priority;
    return other->queue_number < slot.queue_number;
  });
}

ModelSlots::Admitted ModelSlots::Reopen(const Slot& slot, const std::vector<int>& but) {
  Admitted admitted;
  admitted.reserve(slots_.size());
  for (const auto& other : slots_) {
    if (other->closed_for != &slot || std::ranges::find(but, other->index) != but.end()) continue;
    other->closed_for = nullptr;
    if (other->state != ModelState::kLoaded) continue;
    // If there is no memory to admit the requests, LookAtSlots() admits them later.
    RunGuarded("models", "to admit requests", [&]() REQUIRES(mutex_) {
      admitted.emplace_back(other.get(), TakeAdmitted(*other));
    });
  }
  return admitted;
}

Result<std::optional<bool>> ModelSlots::TakeRoom(Slot& slot, Placement& placement, Slot*& leaving) {
  slot.reserved = 0;
  if (stopping_ || draining_) return Fail(ErrorCode::kUnavailable, kServerIsShuttingDown);
  if (slot.waiting.empty() && !slot.model.is_pinned) {
    slot.state = ModelState::kOut;
    return false;
  }
  const std::vector<PlacedModel> placed = Placed();
  placement = Place(config_.budget_bytes, placed,
                    {.model = slot.index, .bytes = slot.needed, .priority = slot.model.priority});
  if (placement.answer == Placement::Answer::kNever) {
    const int64_t pinned = PinnedBytes(placed, slot.index);
    return Fail(
        ErrorCode::kResourceExhausted,
        fmt::format(
            "it needs {}, but all models together may use {}{} (--models-memory); lower its "
            "max_model_len or kv_cache_memory_bytes",
            MemoryText(slot.needed), MemoryText(config_.budget_bytes),
            pinned == 0 ? "" : fmt::format(", of which pinned models use {}", MemoryText(pinned))),
        "models_memory");
  }
  const bool is_now = placement.answer == Placement::Answer::kNow;
  // A model that fits in addition to all other models delays none of them, so it does not wait its
  // turn.
  if (is_now && placement.put_out.empty()) {
    slot.bytes = slot.needed;
    slot.state = ModelState::kLoading;
    slot.done_bytes = slot.total_bytes = 0;
    return true;
  }
  if (!IsNext(slot)) {
    placement.close.clear();
    return std::nullopt;
  }
  if (is_now) {
    slot.reserved = slot.needed;
    leaving = slots_[static_cast<size_t>(placement.put_out.front())].get();
    leaving->state = ModelState::kLeaving;
    // The other models of the list are unloaded in the next attempts. Until then they take no
    // requests.
    placement.close = placement.put_out;
  }
  for (const int index : placement.close) slots_[static_cast<size_t>(index)]->closed_for = &slot;
  return std::nullopt;
}

Result<bool> ModelSlots::MakeRoom(Slot& slot, int64_t bytes) {
  {
    const MutexLock lock(mutex_);
    slot.state = ModelState::kQueued;
    slot.needed = bytes;
    slot.queue_number = ++num_queued_;
  }
  while (true) {
    Admitted reopened;
    Slot* leaving = nullptr;
    Result<std::optional<bool>> taken;
    {
      MutexLock lock(mutex_);
      Placement placement;
      taken = TakeRoom(slot, placement, leaving);
      RunGuarded("models", "to reopen models",
                 [&]() REQUIRES(mutex_) { reopened = Reopen(slot, placement.close); });
      if (taken && !*taken && leaving == nullptr && reopened.empty())
        wake_.WaitUntil(lock, Clock::now() + kLookForRoom);
    }
    HandOver(std::move(reopened));
    if (leaving != nullptr) PutOut(*leaving);
    if (!taken) return tl::unexpected<Error>(std::move(taken).error());
    if (*taken) return **taken;
  }
}

void ModelSlots::PutOut(Slot& slot) {
  const std::weak_ptr<const ModelContext> context = slot.dispatcher->Detach();
  const auto end = Clock::now() + kTimeToLetGo;
  while (!context.expired() && Clock::now() < end) std::this_thread::sleep_for(kLookForHolders);
  if (std::shared_ptr<const ModelContext> held = context.lock()) {
    slot.dispatcher->Attach(std::move(held));
    std::vector<Waiting> admitted;
    {
      const MutexLock lock(mutex_);
      slot.state = ModelState::kLoaded;
      slot.closed_for = nullptr;
      slot.flights->Touch();
      admitted = TakeAdmitted(slot);
    }
    LOG_WARNING("models", "{} is not unloaded: a request still uses it", slot.model.name);
    return HandOver(slot, std::move(admitted));
  }
  slot.metrics.SetSleeping(true);
  // The engine is destroyed without the lock, which would block all requests meanwhile.
  std::unique_ptr<Engine> engine;
  {
    const MutexLock lock(mutex_);
    engine = std::move(slot.engine);
  }
  engine.reset();
  ReturnFreeMemory();
  const MutexLock lock(mutex_);
  slot.state = ModelState::kOut;
  slot.closed_for = nullptr;
  slot.bytes = slot.request_bytes = 0;
  ++slot.num_put_out;
  CountRequestMemory();
  Notify();
  LOG_INFO("models", "{} is put out", slot.model.name);
}

Status ModelSlots::Fill(Slot& slot) {
  const auto start = Clock::now();
  LOG_INFO("models", "loading {}", slot.model.name);
  const auto progress = [this, &slot](int64_t done, int64_t total) {
    const MutexLock lock(mutex_);
    slot.done_bytes = done;
    slot.total_bytes = total;
  };
  ASSIGN_OR_RETURN(
      LoadedModel loaded,
      slot.model.loader->Load([&slot](int i) { return slot.metrics.Of(i); }, progress));
  const ServerConfig& config = slot.model.config;
  const EngineInfo& info = loaded.engine->info();
  std::shared_ptr<const ModelContext> context =
      ModelContext::Make(config, loaded.engine.get(), std::move(loaded.text));
  slot.metrics.SetModel(context->name(), info, config);
  slot.metrics.SetSleeping(false);
  const int64_t request_bytes = info.request_memory_bytes - ImageCacheBytes(config, info, *context);
  std::unique_ptr<Dispatcher> made;
  if (slot.dispatcher == nullptr) {
    made =
        std::make_unique<Dispatcher>(config, slot.keys, exporter_, &slot.metrics, front_->shared());
  }
  std::vector<Waiting> admitted;
  {
    const MutexLock lock(mutex_);
    if (made != nullptr) slot.dispatcher = std::move(made);
    if (leaving_) slot.dispatcher->BeginLeaving();
    if (draining_) {
      loaded.engine->BeginShutdown();
      slot.dispatcher->BeginDrain();
    }
    slot.max_model_len = context->max_model_len;
    slot.has_chat = !context->templates.empty();
    slot.calls_tools = context->tool_parser != nullptr;
    slot.dispatcher->Attach(std::move(context));
    slot.engine = std::move(loaded.engine);
    slot.request_bytes = request_bytes;
    slot.loaded_at = Clock::now();
    slot.load_time = slot.loaded_at - start;
    slot.flights->Touch();
    slot.state = ModelState::kLoaded;
    slot.was_tried = true;
    ++slot.num_loads;
    CountRequestMemory();
    // The model is loaded, so a later exception must not count as a failed load.
    RunGuarded("models", "to report a load", [&] {
      LOG_INFO("models", "{} is loaded in {:.1f} s and takes {}", slot.model.name,
               std::chrono::duration<double>(slot.load_time).count(), MemoryText(slot.bytes));
    });
    RunGuarded("models", "to admit requests",
               [&]() REQUIRES(mutex_) { admitted = TakeAdmitted(slot); });
  }
  HandOver(slot, std::move(admitted));
  return {};
}

void ModelSlots::CountRequestMemory() {
  int64_t bytes = base_request_bytes_;
  for (const auto& slot : slots_) bytes += slot->request_bytes;
  memory_->SetPlanned(static_cast<uint64_t>(bytes));
}

std::vector<ModelFacts> ModelSlots::Facts() const {
  const MutexLock lock(mutex_);
  std::vector<ModelFacts> all;
  for (const auto& slot : slots_) {
    ModelFacts& facts = all.emplace_back();
    facts.index = slot->index;
    facts.model = &slot->model;
    facts.keys = slot->keys.get();
    facts.state = StateOf(*slot);
    if (slot->state == ModelState::kFailed) facts.error = slot->error.message;
    facts.done_bytes = slot->done_bytes;
    facts.total_bytes = slot->total_bytes;
    facts.bytes = slot->bytes;
    facts.max_model_len = slot->max_model_len;
    facts.has_chat = slot->has_chat;
    facts.calls_tools = slot->calls_tools;
    facts.in_flight = slot->flights->count;
    facts.waiting = std::ssize(slot->waiting);
    facts.num_loads = slot->num_loads;
    facts.num_failures = slot->num_failures;
    facts.num_put_out = slot->num_put_out;
    if (slot->state == ModelState::kLoaded) facts.context = slot->dispatcher->model();
    facts.metrics = &slot->metrics;
  }
  return all;
}

std::vector<std::string> ModelSlots::ThroughputLines() {
  std::vector<std::string> lines;
  for (const auto& slot : slots_) {
    for (const std::string& line : slot->metrics.ThroughputLines())
      lines.push_back(fmt::format("{}: {}", slot->model.name, line));
  }
  return lines;
}

void ModelSlots::BeginLeaving() {
  const MutexLock lock(mutex_);
  leaving_ = true;
  for (const auto& slot : slots_) {
    if (slot->dispatcher != nullptr) slot->dispatcher->BeginLeaving();
  }
}

void ModelSlots::BeginDrain() {
  std::vector<Waiting> refused;
  std::vector<Dispatcher*> dispatchers;
  {
    const MutexLock lock(mutex_);
    if (std::exchange(draining_, true)) return;
    for (const auto& slot : slots_) {
      if (slot->dispatcher != nullptr) dispatchers.push_back(slot->dispatcher.get());
      if (slot->engine != nullptr) slot->engine->BeginShutdown();
      for (Waiting& waiting : std::exchange(slot->waiting, {}))
        refused.push_back(std::move(waiting));
    }
    Notify();
  }
  // Requests that the dispatchers have deferred are also refused.
  for (Dispatcher* const dispatcher : dispatchers) dispatcher->BeginDrain();
  Refuse(refused, ServiceUnavailable(kServerIsShuttingDown));
}

bool ModelSlots::IsDrained() const {
  const MutexLock lock(mutex_);
  for (const auto& slot : slots_) {
    if (IsBusy(*slot)) return false;
  }
  return true;
}

bool ModelSlots::IsLoading() const {
  const MutexLock lock(mutex_);
  return std::any_of(slots_.begin(), slots_.end(), [](const auto& slot) {
    return !slot->thread_is_over && slot->state != ModelState::kLoaded;
  });
}

void ModelSlots::Stop() {
  BeginDrain();
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    Notify();
  }
  if (keeper_.joinable()) keeper_.join();
  for (const auto& slot : slots_) {
    if (slot->thread.joinable()) slot->thread.join();
  }
  for (const auto& slot : slots_) {
    if (slot->dispatcher != nullptr) {
      slot->dispatcher->Stop();
      slot->dispatcher->Detach();
    }
    slot->engine.reset();
  }
}

}  // namespace sluice
