#include "engine/replica_engine.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/firewall.h"
#include "base/log.h"
#include "engine/active_request.h"
#include "engine/default_seed.h"

namespace sluice {
namespace {

int64_t ReplicaTicks() {
  return Clock::now().time_since_epoch().count();
}

}  // namespace

ReplicaEngine::ReplicaEngine(std::vector<std::unique_ptr<Engine>> engines, EngineInfo info,
                             uint64_t seed, bool caches_prefixes)
    : info_(std::move(info)),
      base_seed_(seed != 0 ? seed : RandomSeed()),
      router_(static_cast<int>(engines.size()), info_.block_size,
              caches_prefixes ? info_.num_blocks : 0),
      members_(engines.size()) {
  CHECK(!engines.empty() && engines.size() <= kMostEngines);
  for (size_t i = 0; i < engines.size(); ++i) members_[i].engine = std::move(engines[i]);
  watcher_ = StartThread("engines-watch", [this] { Watch(); });
}

ReplicaEngine::~ReplicaEngine() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  watcher_.join();
}

std::string ReplicaEngine::NameOf(int i) const {
  return fmt::format("engine {}", info_.first_engine + i);
}

EngineState ReplicaEngine::StateOf(int i) const {
  const Engine& engine = *members_[static_cast<size_t>(i)].engine;
  if (engine.healthy()) return {};
  std::string reason = engine.failure();
  if (reason.empty()) {
    reason = engine.stalled() ? "a step does not end" : "several steps in a row have failed";
  }
  return {.is_healthy = false, .reason = std::move(reason)};
}

std::vector<EngineState> ReplicaEngine::states() const {
  std::vector<EngineState> all;
  for (int i = 0; i < num_engines(); ++i) all.push_back(StateOf(i));
  return all;
}

bool ReplicaEngine::healthy() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const Member& member) { return member.engine->healthy(); });
}

std::string ReplicaEngine::failure() const {
  std::string all;
  for (int i = 0; i < num_engines(); ++i) {
    const std::string one = members_[static_cast<size_t>(i)].engine->failure();
    if (one.empty()) return "";
    all += fmt::format("{}{}: {}", all.empty() ? "" : "; ", NameOf(i), one);
  }
  return all;
}

bool ReplicaEngine::stalled() const {
  return std::all_of(members_.begin(), members_.end(),
                     [](const Member& member) { return member.engine->stalled(); });
}

std::array<bool, kMostEngines> ReplicaEngine::MayBeChosen() const {
  std::array<bool, kMostEngines> may{};
  bool any = false;
  const int64_t now = ReplicaTicks();
  for (size_t i = 0; i < members_.size(); ++i) {
    const Engine& engine = *members_[i].engine;
    if (engine.healthy()) {
      may[i] = true;
    } else if (engine.failure().empty() && engine.num_unfinished() == 0) {
      may[i] = now - members_[i].last_given.load() > Clock::duration(kRetryInterval).count();
    }
    any = any || may[i];
  }
  if (any) return may;
  for (size_t i = 0; i < members_.size(); ++i) may[i] = members_[i].engine->failure().empty();
  return may;
}

Result<RequestHandle> ReplicaEngine::Submit(Request request) {
  RequestLimits limits{info_.model.vocab_size, info_.max_model_len};
  if (info_.pooling) limits.pooling = info_.pooling->method;
  // The engine that gets the request checks its images and rows, because it knows their limits.
  std::vector<ImageInput> images = std::exchange(request.images, {});
  std::shared_ptr<const PromptRows> rows = std::exchange(request.rows, nullptr);
  RETURN_IF_ERROR(CheckRequest(request, limits));
  request.images = std::move(images);
  request.rows = std::move(rows);
  if (const std::string lost = failure(); !lost.empty()) {
    return Fail(ErrorCode::kUnavailable,
                lost + "; the server computes again when it has been restarted");
  }
  std::array<bool, kMostEngines> may = MayBeChosen();
  if (request.engine) {
    CHECK(*request.engine >= 0 && *request.engine < num_engines());
    may = {};
    may[static_cast<size_t>(*request.engine)] = true;
  }
  // All engines may have failed meanwhile; in that case the first one refuses the request.
  if (std::none_of(may.begin(), may.end(), [](bool one) { return one; })) may[0] = true;
  const Router::Route route = router_.Choose(request, may);
  const auto sink = std::make_shared<RoutedSink>(open_, router_, route, request);
  request.sink = sink;
  if (!request.default_seed) request.default_seed = DefaultSeed(base_seed_, ++num_requests_);
  Member& member = members_[static_cast<size_t>(route.engine)];
  member.last_given.store(ReplicaTicks());
  open_.Add(sink);
  ASSIGN_OR_RETURN(const RequestHandle handle, member.engine->Submit(std::move(request)));
  return handle * static_cast<uint64_t>(num_engines()) + static_cast<uint64_t>(route.engine);
}

void ReplicaEngine::Abort(RequestHandle handle) {
  const auto count = static_cast<uint64_t>(num_engines());
  members_[handle % count].engine->Abort(handle / count);
}

void ReplicaEngine::StopSequence(RequestHandle handle, int sequence) {
  const auto count = static_cast<uint64_t>(num_engines());
  members_[handle % count].engine->StopSequence(handle / count, sequence);
}

void ReplicaEngine::BeginShutdown() {
  for (const Member& member : members_) member.engine->BeginShutdown();
}

Status ReplicaEngine::SetFrozen(bool frozen) {
  Status all;
  for (Member& member : members_) {
    if (Status status = member.engine->SetFrozen(frozen); !status) all = std::move(status);
  }
  return all;
}

Status ReplicaEngine::StageWeights(const std::filesystem::path& folder) {
  for (const Member& member : members_) {
    if (Status staged = member.engine->StageWeights(folder); !staged) {
      DropStagedWeights();
      return staged;
    }
  }
  return {};
}

Status ReplicaEngine::CommitWeights() {
  for (int i = 0; i < num_engines(); ++i) {
    const Engine& engine = *members_[static_cast<size_t>(i)].engine;
    if (engine.failure().empty() && !engine.stalled()) continue;
    return Fail(ErrorCode::kUnavailable,
                fmt::format("{} has failed ({}), and weights are replaced only in all engines at "
                            "once: the old weights remain in use",
                            NameOf(i), StateOf(i).reason));
  }
  for (const Member& member : members_) RETURN_IF_ERROR(member.engine->CommitWeights());
  router_.ForgetPrefixes();
  return {};
}

void ReplicaEngine::DropStagedWeights() {
  for (const Member& member : members_) member.engine->DropStagedWeights();
}

CacheEventCounts ReplicaEngine::cache_event_counts() const {
  CacheEventCounts all;
  for (const Member& member : members_) {
    const CacheEventCounts counts = member.engine->cache_event_counts();
    all.published += counts.published;
    all.dropped += counts.dropped;
    all.missed += counts.missed;
  }
  return all;
}

TierCounts ReplicaEngine::tier_counts() const {
  TierCounts all = members_.front().engine->tier_counts();  // all engines share the disk tier
  for (size_t i = 1; i < members_.size(); ++i) {
    const TierCounts counts = members_[i].engine->tier_counts();
    all.blocks.Add(counts.blocks);
    all.snapshots.Add(counts.snapshots);
    all.ram_bytes += counts.ram_bytes;
    all.ram_capacity += counts.ram_capacity;
  }
  return all;
}

bool ReplicaEngine::ResetPrefixCache() {
  bool done = true;
  for (const Member& member : members_) {
    // A stalled engine would never answer.
    const bool is_reset = !member.engine->stalled() && member.engine->ResetPrefixCache();
    done = done && is_reset;
  }
  router_.ForgetPrefixes();
  return done;
}

void ReplicaEngine::ResetImageRows() {
  for (const Member& member : members_) {
    if (!member.engine->stalled()) member.engine->ResetImageRows();
  }
}

void ReplicaEngine::Watch() {
  std::vector<bool> was_healthy(members_.size(), true);
  MutexLock lock(mutex_);
  while (!stopping_) {
    wake_.WaitUntil(lock, Clock::now() + kWatchInterval);
    lock.Unlock();
    for (int i = 0; i < num_engines(); ++i) {
      // After an exception, this engine is checked again in the next round.
      RunGuarded("engine", "to watch an engine", [&] {
        was_healthy[static_cast<size_t>(i)] = LookAt(i, was_healthy[static_cast<size_t>(i)]);
      });
    }
    lock.Lock();
  }
}

bool ReplicaEngine::LookAt(int i, bool was_healthy) {
  const Engine& engine = *members_[static_cast<size_t>(i)].engine;
  const EngineState state = StateOf(i);
  if (state.is_healthy && !was_healthy) LOG_INFO("engine", "{} computes again", NameOf(i));
  if (!state.is_healthy && was_healthy) {
    LOG_ERROR("engine", "{} has failed; requests are sent to the other engines: {}", NameOf(i),
              state.reason);
  }
  // If the engine's steps fail but it still runs, it ends the requests itself.
  if (!state.is_healthy && (engine.stalled() || !engine.failure().empty())) {
    open_.FailAt(i, {ErrorCode::kUnavailable,
                     fmt::format("{} has failed: {}", NameOf(i), state.reason), ""});
  }
  return state.is_healthy;
}

}  // namespace sluice
