#include "engine/engine_loop.h"

#include <utility>

#include "base/firewall.h"
#include "base/log.h"
#include "base/mutex.h"
#include "engine/default_seed.h"

namespace sluice {
namespace {

// This many consecutive failed steps are not attributed to a single request.
constexpr int kFailedStepsUnhealthy = 3;

// Time limit for writing blocks to the disk at shutdown; engines share the time.
constexpr double kSaveSeconds = 10;

int64_t Now() {
  return Clock::now().time_since_epoch().count();
}

int64_t Ticks(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))
      .count();
}

}  // namespace

Result<std::unique_ptr<Engine>> EngineLoop::Start(Parts parts, EngineInfo info, EnginePlan plan,
                                                  EngineObserver* observer,
                                                  std::optional<Loader> loader) {
  std::unique_ptr<EngineLoop> loop(new EngineLoop(std::move(parts), std::move(info),
                                                  std::move(plan), observer, std::move(loader)));
  EngineLoop* self = loop.get();
  RETURN_IF_ERROR(loop->MakeCore());
  loop->thread_ = StartThread("engine", [self] { self->Run(); });
  return std::unique_ptr<Engine>(std::move(loop));
}

EngineLoop::EngineLoop(Parts parts, EngineInfo info, EnginePlan plan, EngineObserver* observer,
                       std::optional<Loader> loader)
    : parts_(std::move(parts)),
      info_(std::move(info)),
      plan_(std::move(plan)),
      observer_(observer),
      loader_(std::move(loader)),
      base_seed_(plan_.config.seed),
      folder_(plan_.config.model_folder),
      stage_(parts_.stage) {
  if (base_seed_ == 0) base_seed_ = RandomSeed();
}

Status EngineLoop::MakeCore() {
  if (plan_.config.offload.is_given()) {
    if (parts_.cache_bytes == nullptr) {
      Device* const device = parts_.devices.empty() ? nullptr : parts_.devices.front().get();
      ASSIGN_OR_RETURN(parts_.cache_bytes, MakeCacheBytes(*parts_.cache, device));
    }
    ASSIGN_OR_RETURN(tiers_,
                     KvTiers::Create(plan_, *parts_.cache_bytes, parts_.disks, tier_counters_));
  }
  ASSIGN_OR_RETURN(core_, EngineCore::Create(
                              plan_, *parts_.model, *parts_.cache, *parts_.pool, observer_,
                              [this](const ActiveRequest& request) { OnEnd(request); },
                              [this] { OnFailedStep(); }, parts_.draft.get(), parts_.dense.get(),
                              parts_.tower.get(), parts_.listener.get(), parts_.draft_cache));
  core_->set_weights(num_replaced_);
  if (tiers_ != nullptr) core_->UseTiers(&tiers_->blocks(), tiers_->snapshots());
  if (!replays()) core_->UseJournal(parts_.journal);
  return {};
}

EngineLoop::~EngineLoop() {
  {
    const MutexLock lock(mutex_);
    shutting_down_ = true;
    stopping_ = true;
  }
  wake_.NotifyOne();
  if (thread_.joinable()) thread_.join();
}

EngineLoop::Load EngineLoop::LoadOf(const Request& request) {
  return {1, request.num_sequences,
          static_cast<int64_t>(request.prompt.size()) * request.num_sequences};
}

Result<RequestHandle> EngineLoop::Reserve(const Load& load, bool was_accepted) {
  const MutexLock lock(mutex_);
  if (!residency_.complete())
    return Fail(ErrorCode::kUnavailable, "the model sleeps; POST /wake_up first");
  const bool may_finish = was_accepted && !stopping_ && Now() < drain_deadline_.load();
  if (shutting_down_ && !may_finish)
    return Fail(ErrorCode::kUnavailable, "the server is shutting down");
  const LoopLimits& most = plan_.config.loop;
  if (unfinished_.requests + load.requests > most.max_unfinished ||
      unfinished_.sequences + load.sequences > most.max_unfinished_sequences ||
      unfinished_.tokens + load.tokens > most.max_unfinished_tokens) {
    return Fail(ErrorCode::kUnavailable,
                fmt::format("the queue is full: {} requests with {} sequences and {} prompt tokens "
                            "are waiting or running; try again later",
                            unfinished_.requests, unfinished_.sequences, unfinished_.tokens));
  }
  unfinished_.requests += load.requests;
  unfinished_.sequences += load.sequences;
  unfinished_.tokens += load.tokens;
  return next_handle_++;
}

void EngineLoop::Release(const Load& load) {
  const MutexLock lock(mutex_);
  unfinished_.requests -= load.requests;
  unfinished_.sequences -= load.sequences;
  unfinished_.tokens -= load.tokens;
}

int64_t EngineLoop::num_unfinished() const {
  const MutexLock lock(mutex_);
  return unfinished_.requests;
}

RequestLimits EngineLoop::Limits() const {
  RequestLimits limits{info_.model.vocab_size, info_.max_model_len};
  if (info_.pooling) limits.pooling = info_.pooling->method;
  limits.no_images = info_.no_images;
  limits.row_width = info_.prompt_row_width;
  limits.no_rows = info_.no_prompt_rows;
  limits.hasher = &image_hasher_;
  if (parts_.tower == nullptr) return limits;
  const SchedulerLimits& step = plan_.scheduler;
  limits.images =
      RequestLimits::Images{.tower = &*plan_.tower,
                            .options = plan_.tower_options,
                            .max_rows = plan_.image_rows,
                            .max_whole = step.max_num_batched_tokens - step.max_num_seqs,
                            .max_logit_rows = step.max_prompt_logit_rows,
                            .has_axes = !info_.model.spec.rope_axes.empty()};
  return limits;
}

Result<RequestHandle> EngineLoop::Submit(Request request) {
  if (const std::string lost = failure(); !lost.empty()) {
    return Fail(ErrorCode::kUnavailable,
                lost + "; the server computes again when it has been restarted");
  }
  const RequestLimits limits = Limits();
  RETURN_IF_ERROR(CheckRequest(request, limits));
  const Load load = LoadOf(request);
  if (load.tokens > plan_.config.loop.max_unfinished_tokens) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} sequences of a prompt of {} tokens are more than this server holds "
                            "at a time; lower n",
                            request.num_sequences, request.prompt.size()),
                "n");
  }
  ASSIGN_OR_RETURN(const RequestHandle handle, Reserve(load, request.was_accepted));
  const bool siblings_wait = (plan_.config.enable_prefix_caching && request.use_prefix_cache) ||
                             request.sampling.prompt_logprobs.has_value();
  const uint64_t seed = request.default_seed.value_or(DefaultSeed(base_seed_, handle));
  auto active =
      MakeActiveRequest(handle, std::move(request), limits, info_.end_tokens, seed, siblings_wait);
  if (!Push(AddCommand{std::move(active)})) {
    Release(load);
    return Fail(ErrorCode::kUnavailable, "the server is shutting down");
  }
  return handle;
}

bool EngineLoop::Push(Command command) {
  {
    const MutexLock lock(mutex_);
    if (stopping_) return false;
    queue_.push_back(std::move(command));
  }
  wake_.NotifyOne();
  return true;
}

// Once the engine stops, all requests end, so a dropped command makes no difference.
void EngineLoop::Abort(RequestHandle handle) {
  Push(AbortCommand{handle});
}

void EngineLoop::StopSequence(RequestHandle handle, int sequence) {
  Push(StopCommand{handle, sequence});
}

bool EngineLoop::ResetPrefixCache() {
  ResetCommand command;
  std::future<bool> done = command.done.get_future();
  return Push(std::move(command)) && done.get();
}

void EngineLoop::ResetImageRows() {
  // While the engine sleeps or shuts down, no running request uses image rows.
  (void)CallOnThread([this] {
    if (core_ != nullptr) core_->ResetImageRows();
    return Status();
  });
}

void EngineLoop::BeginShutdown() {
  const double seconds = plan_.config.loop.drain_seconds;
  {
    const MutexLock lock(mutex_);
    if (std::exchange(shutting_down_, true)) return;
    frozen_ = false;
    drain_deadline_ = Now() + Ticks(seconds);
  }
  wake_.NotifyOne();
  LOG_INFO("engine", "shutting down: {} requests may finish within {} s", num_unfinished(),
           seconds);
}

bool EngineLoop::healthy() const {
  if (broken_.load() || !ModelAlive() || failed_steps_.load() >= kFailedStepsUnhealthy)
    return false;
  return !stalled();
}

bool EngineLoop::stalled() const {
  return !idle_.load() &&
         Now() - last_progress_.load() >= Ticks(plan_.config.loop.watchdog_seconds);
}

std::string EngineLoop::failure() const {
  const Status alive = ModelAlive();
  if (!alive) return alive.error().message;
  if (is_state_lost_.load()) return "the engine's state is lost";
  return is_model_lost_.load() ? "the device is lost" : "";
}

void EngineLoop::NoteProgress() {
  last_progress_.store(Now());
}

void EngineLoop::OnEnd(const ActiveRequest& request) {
  if (replays()) return;  // replayed requests were not counted
  Release(LoadOf(request.request));
}

void EngineLoop::CheckIdle() {
  const BlockPool& pool = core_->pool();
  if (pool.num_held() == 0 && pool.num_free() + pool.num_cached() == pool.num_blocks()) return;
  LOG_ERROR("engine", "idle, but {} of {} KV blocks are still in use; please report this",
            pool.num_held(), pool.num_blocks());
  broken_ = true;
}

// After the loss of a device or rank, all requests are refused immediately, instead of each failing
// in its own step.
void EngineLoop::OnFailedStep() {
  ++failed_steps_;
  if (is_model_lost_.load()) return;
  Status alive = parts_.model->CheckAlive();
  const bool are_ranks_lost = !alive;
  if (alive && !parts_.devices.empty()) alive = parts_.devices.front()->CheckAlive();
  if (alive) return;
  LOG_ERROR("engine", "{} lost, all requests are refused: restart the server ({})",
            are_ranks_lost ? "ranks are" : "the device is", alive.error().message);
  is_model_lost_ = true;
  broken_ = true;
}

bool EngineLoop::TakeCommands(std::vector<Command>& taken) {
  taken.clear();
  MutexLock lock(mutex_);
  if (queue_.empty() && !stopping_ && (frozen_ || !has_work())) {
    idle_ = true;
    while (queue_.empty() && !stopping_ && (frozen_ || !has_work())) wake_.Wait(lock);
    NoteProgress();
  }
  idle_ = false;
  may_step_ = !frozen_;
  taken.swap(queue_);
  return !stopping_;
}

void EngineLoop::Execute(Command& command) {
  if (auto* add = std::get_if<AddCommand>(&command)) {
    const std::shared_ptr<RequestSink> sink = add->request->request.sink;
    const Load load = LoadOf(add->request->request);
    try {
      core_->Add(std::move(add->request));
    } catch (...) {
      LogCaught("engine", "to take a request");
      Release(load);
      RunGuarded("engine", "to fail a request", [&] { sink->OnError(CaughtError()); });
    }
  } else if (const auto* abort = std::get_if<AbortCommand>(&command)) {
    if (core_ != nullptr) core_->Abort(abort->handle);
  } else if (const auto* stop = std::get_if<StopCommand>(&command)) {
    if (core_ != nullptr) core_->StopSequence(stop->handle, stop->sequence);
  } else if (auto* call = std::get_if<CallCommand>(&command)) {
    call->done.set_value(CatchToResult(call->call));
  } else {
    std::get<ResetCommand>(command).done.set_value(core_ == nullptr || core_->ResetPrefixCache());
  }
}

void EngineLoop::Step() {
  try {
    if (core_->Step()) failed_steps_ = 0;
  } catch (...) {
    LogCaught("engine", "a step, outside of the model,");
    FailAll(CaughtMessage());
  }
}

void EngineLoop::FailAll(const std::string& reason) {
  if (core_->FailAll(reason)) return;
  LOG_ERROR("engine", "its state is lost, all requests are refused: restart the server");
  is_state_lost_ = true;
  broken_ = true;
}

void EngineLoop::RunReplay() {
  const ReplaySeat seat{
      .vocab_size = info_.model.vocab_size,
      .fresh_core = [this]() -> Result<EngineCore*> {
        core_.reset();
        RETURN_IF_ERROR(MakeCore());
        core_->UseJournal(parts_.journal);
        return core_.get();
      },
      .make_request = [this](RequestHandle handle, Request request, uint64_t seed,
                             bool siblings_wait) -> Result<std::unique_ptr<ActiveRequest>> {
        const RequestLimits limits = Limits();
        RETURN_IF_ERROR(CheckRequest(request, limits));
        return MakeActiveRequest(handle, std::move(request), limits, info_.end_tokens, seed,
                                 siblings_wait);
      }};
  RunGuarded("engine", "a replay", [&] { parts_.journal->Replay(seat); });
}

void EngineLoop::Run() {
  NoteProgress();
  parts_.pool->PinCaller();
  parts_.model->PrepareThread(*parts_.pool);
  if (parts_.draft != nullptr) parts_.draft->PrepareThread(*parts_.pool);
  if (replays()) return RunReplay();
  std::vector<Command> commands;
  bool running = true;
  while (running) {
    running = TakeCommands(commands);
    for (Command& command : commands) {
      const auto execute = [&] { Execute(command); };
      // Try again: without the abort, the request would continue although nobody waits for it.
      if (!RunGuarded("engine", "a command", execute))
        RunGuarded("engine", "a command, tried again,", execute);
    }
    const int64_t deadline = drain_deadline_.load();
    if (!running || (deadline != 0 && Now() >= deadline)) {
      if (has_work())
        LOG_WARNING("engine", "{} requests are aborted: the server shuts down", num_unfinished());
      if (core_ != nullptr &&
          !RunGuarded("engine", "to abort all requests", [&] { core_->AbortAll(); }))
        FailAll("the server shuts down");
    }
    if (may_step_ && has_work()) Step();
    if (core_ != nullptr)
      RunGuarded("engine", "to tell cache events", [&] { core_->TellCacheEvents(); });
    NoteProgress();
    if (core_ != nullptr && !core_->has_work()) {
      RunGuarded("engine", "to report that it is idle", [&] { core_->ReportIdle(); });
      CheckIdle();
    }
  }
  if (core_ == nullptr || parts_.disks.blocks == nullptr || is_state_lost_) return;
  RunGuarded("engine", "to save the cache",
             [&] { core_->SaveCache(kSaveSeconds / plan_.num_engines); });
}

}  // namespace sluice
