// Releases, reloads and replaces an engine's weights and cache between steps.
#include <fcntl.h>
#include <malloc.h>

#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "base/firewall.h"
#include "base/list_folder.h"
#include "base/log.h"
#include "base/owned_fd.h"
#include "engine/engine_loop.h"

namespace sluice {
namespace {

// Asks the system to drop cached pages of the weight files. Pages that it cannot drop stay.
void DropFilePages(const std::filesystem::path& folder) {
  std::error_code error;
  for (const std::filesystem::path& path : ListFolder(folder, error)) {
    if (path.extension() != ".safetensors") continue;
    const OwnedFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file) posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

}  // namespace

Status EngineLoop::CallOnThread(std::function<Status()> call) {
  CallCommand command{.call = std::move(call), .done = {}};
  std::future<Status> done = command.done.get_future();
  if (!Push(std::move(command)))
    return Fail(ErrorCode::kUnavailable, "the server is shutting down");
  return done.get();
}

Status EngineLoop::ModelAlive() const {
  const MutexLock lock(model_mutex_);
  return parts_.model == nullptr ? Status() : parts_.model->CheckAlive();
}

Residency EngineLoop::residency() const {
  const MutexLock lock(mutex_);
  return residency_;
}

Status EngineLoop::SetFrozen(bool frozen) {
  // Runs on the engine's thread, so that no step is computed once this function has returned.
  return CallOnThread([this, frozen]() -> Status {
    const MutexLock lock(mutex_);
    frozen_ = frozen && !shutting_down_;
    may_step_ = !frozen_;
    return {};
  });
}

Status EngineLoop::Sleep(bool drops_files) {
  if (!loader_ || !loader_->load_weights) return Engine::Sleep(drops_files);
  return CallOnThread([this, drops_files] { return FallAsleep(drops_files); });
}

Status EngineLoop::FallAsleep(bool drops_files) {
  std::unique_ptr<Model> dropped;
  {
    const MutexLock lock(mutex_);
    if (unfinished_.requests > 0) {
      return Fail(ErrorCode::kUnavailable,
                  fmt::format("{} requests are not finished", unfinished_.requests));
    }
    // A single critical section: nothing may be staged between the check and the reset of stage_.
    const MutexLock staging(staging_mutex_);
    if (is_staging_)
      return Fail(ErrorCode::kUnavailable, "new weights are being loaded; try again afterwards");
    residency_ = {.weights = false, .cache = false};
    dropped = TakeStaged();
    stage_ = nullptr;
  }
  dropped.reset();
  if (core_ != nullptr) {
    core_->ResetPrefixCache(/*keeps_disk=*/true);
    core_->TellCacheEvents();
  }
  core_.reset();
  tiers_.reset();
  parts_.cache_bytes.reset();
  parts_.cache.reset();
  parts_.draft.reset();
  parts_.dense.reset();
  std::unique_ptr<Model> model;
  {
    const MutexLock lock(model_mutex_);
    model = std::move(parts_.model);
  }
  model.reset();
  parts_.device_pool.reset();
  malloc_trim(0);
  if (drops_files) DropFilePages(weights_folder());
  LOG_INFO("engine", "asleep: weights and KV cache are released");
  return {};
}

Status EngineLoop::WakeUp(bool weights, bool cache) {
  if (!loader_ || !loader_->load_weights) return Engine::WakeUp(weights, cache);
  return CallOnThread([this, weights, cache] {
    idle_ = true;  // so that the watchdog does not count the loading time
    return LoadParts(weights, cache);
  });
}

Status EngineLoop::LoadParts(bool weights, bool cache) {
  const Residency before = residency();
  if (before.complete()) return {};
  Parts made;
  made.pool = std::move(parts_.pool);
  made.devices = std::move(parts_.devices);
  Status loaded;
  if (weights && !before.weights) loaded = loader_->load_weights(weights_folder(), made);
  const bool has_weights = before.weights || (weights && loaded);
  if (loaded && cache && !before.cache && made.cache == nullptr) loaded = loader_->load_cache(made);
  parts_.pool = std::move(made.pool);
  parts_.devices = std::move(made.devices);
  if (!has_weights) return loaded;
  TakeParts(made);
  Residency after{.weights = true, .cache = parts_.cache != nullptr};
  if (after.complete()) {
    UseDiskOf(weights_folder());
    if (Status core = MakeCore(); !core) {
      tiers_.reset();
      parts_.cache_bytes.reset();
      parts_.cache.reset();
      after.cache = false;
      loaded = std::move(core);
    }
  }
  {
    const MutexLock lock(mutex_);
    residency_ = after;
  }
  if (after.complete()) LOG_INFO("engine", "awake");
  return loaded;
}

void EngineLoop::UseDiskOf(const std::filesystem::path& folder) {
  if (parts_.disks.blocks == nullptr) return;
  const auto identity = TierIdentityOf(plan_, info_.model, folder);
  const Status used = identity ? parts_.disks.Use(*identity) : tl::unexpected(identity.error());
  if (used) return;
  LOG_ERROR(
      "engine",
      "blocks computed with the weights in {} are neither stored on disk nor read from it: {}",
      folder.string(), used.error().message);
  parts_.disks.Rest();
}

void EngineLoop::SwitchDiskTo(const std::filesystem::path& folder) {
  if (parts_.disks.blocks == nullptr) return;
  // An engine that has not switched yet still evicts blocks of the old weights.
  parts_.disks.Rest();
  if (++*parts_.disks.num_switched % plan_.num_engines == 0) UseDiskOf(folder);
}

void EngineLoop::TakeParts(Parts& made) {
  if (made.device_pool != nullptr) parts_.device_pool = std::move(made.device_pool);
  if (made.draft != nullptr) {
    parts_.draft = std::move(made.draft);
    parts_.draft_cache = made.draft_cache;
  }
  if (made.dense != nullptr) parts_.dense = std::move(made.dense);
  if (made.cache != nullptr) parts_.cache = std::move(made.cache);
  if (made.cache_bytes != nullptr) parts_.cache_bytes = std::move(made.cache_bytes);
  if (made.model == nullptr) return;
  {
    const MutexLock lock(staging_mutex_);
    stage_ = made.stage;
  }
  made.model->PrepareThread(*parts_.pool);
  if (parts_.draft != nullptr) parts_.draft->PrepareThread(*parts_.pool);
  const MutexLock lock(model_mutex_);
  parts_.model = std::move(made.model);
}

std::filesystem::path EngineLoop::weights_folder() const {
  const MutexLock lock(staging_mutex_);
  return folder_;
}

Status EngineLoop::StageWeights(const std::filesystem::path& folder) {
  if (!loader_ || (!loader_->load_model && !loader_->stage)) return Engine::StageWeights(folder);
  DropStagedWeights();  // frees their memory for the new weights
  if (loader_->stage) return StageInRanks(folder);
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model, loader_->load_model(folder));
  const MutexLock lock(staging_mutex_);
  staged_ = std::move(model);
  staged_folder_ = folder;
  return {};
}

Status EngineLoop::StageInRanks(const std::filesystem::path& folder) {
  MutexLock lock(staging_mutex_);
  if (stage_ == nullptr) {
    return Fail(ErrorCode::kUnavailable,
                "the weights are not in memory; POST /wake_up?tags=weights first");
  }
  WeightStage& stage = *stage_;
  is_staging_ = true;
  lock.Unlock();
  Status staged = CatchToResult([&] { return loader_->stage(stage, folder); });
  lock.Lock();
  is_staging_ = false;
  if (staged) staged_folder_ = folder;
  return staged;
}

void EngineLoop::DropStagedWeights() {
  std::unique_ptr<Model> dropped;
  const MutexLock lock(staging_mutex_);
  dropped = TakeStaged();
}

std::unique_ptr<Model> EngineLoop::TakeStaged() {
  if (!staged_folder_.empty() && stage_ != nullptr) stage_->Drop();
  staged_folder_.clear();
  return std::move(staged_);
}

Status EngineLoop::CommitWeights() {
  return CallOnThread([this] { return CatchToResult([this] { return UseStaged(); }); });
}

Status EngineLoop::UseStaged() {
  if (!residency().weights) {
    return Fail(ErrorCode::kUnavailable,
                "the weights are not in memory; POST /wake_up?tags=weights first");
  }
  std::unique_ptr<Model> next;
  std::filesystem::path folder;
  WeightStage* stage = nullptr;
  {
    const MutexLock lock(staging_mutex_);
    next.swap(staged_);
    folder = std::exchange(staged_folder_, {});
    stage = stage_;
  }
  if (folder.empty()) return Fail(ErrorCode::kInvalidArgument, "no weights are staged");
  if (next != nullptr) next->PrepareThread(*parts_.pool);
  ++num_replaced_;
  SwitchDiskTo(folder);
  if (core_ != nullptr) {
    core_->ReplaceModel(next != nullptr ? *next : *parts_.model);
    core_->set_weights(num_replaced_);
  }
  if (next == nullptr) {
    stage->Switch();
    parts_.model->PrepareThread(*parts_.pool);
  } else {
    const MutexLock lock(model_mutex_);
    next.swap(parts_.model);
  }
  {
    const MutexLock lock(staging_mutex_);
    folder_ = folder;
  }
  next.reset();
  malloc_trim(0);
  LOG_INFO("engine", "the weights of {} are used from now on", folder.string());
  return {};
}

}  // namespace sluice
