#include "server/api/context/weight_updates.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace sluice {
namespace {

ApiStatus CheckFolder(const std::string& folder) {
  const std::filesystem::path path(folder);
  std::error_code error;
  if (!path.is_absolute() || !std::filesystem::is_directory(path, error))
    return BadParameter("expected the absolute path of a folder of this machine", "path", folder);
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator entry(path, error); !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".safetensors") return {};
  }
  return BadParameter("the folder holds no safetensors files", "path", folder);
}

}  // namespace

void WeightUpdates::Start(Engine& engine) {
  const MutexLock lock(update_mutex_);
  engine.DropStagedWeights();
  is_started_ = true;
  is_loaded_ = false;
}

ApiStatus WeightUpdates::Load(Engine& engine, const std::string& folder) {
  const MutexLock lock(update_mutex_);
  if (!is_started_) return BadRequest("No update is open; POST /start_weight_update first.");
  if (is_loaded_)
    return BadRequest("An update takes one folder; POST /finish_weight_update or start anew.");
  API_RETURN_IF_ERROR(CheckFolder(folder));
  if (const Status staged = engine.StageWeights(folder); !staged) {
    is_started_ = false;
    ApiError error = FromError(staged.error());
    // A damaged file, or one of another model, is the trainer's.
    if (staged.error().code == ErrorCode::kInvalidData) error.status = 400;
    if (error.status == 400) error.type = "BadRequestError";
    error.message = fmt::format("the old weights stay: {}", error.message);
    return tl::unexpected<ApiError>(std::move(error));
  }
  is_loaded_ = true;
  return {};
}

ApiStatus WeightUpdates::Finish(Engine& engine, const std::string& version) {
  const MutexLock lock(update_mutex_);
  if (!is_started_) return BadRequest("No update is open; POST /start_weight_update first.");
  if (!is_loaded_) {
    is_started_ = false;
    return BadRequest("Nothing was loaded in this update, which ends: the old weights stay.");
  }
  // Before a token of the new weights is told.
  PushVersion(version);
  if (const Status committed = engine.CommitWeights(); !committed) {
    PopVersion();
    return tl::unexpected<ApiError>(FromError(committed.error()));
  }
  is_started_ = is_loaded_ = false;
  return {};
}

void WeightUpdates::PushVersion(const std::string& version) {
  const MutexLock lock(version_mutex_);
  ++num_updates_;
  versions_.push_back(version.empty() ? versions_.back() : version);
  if (versions_.size() > kMostVersions) versions_.pop_front();
}

void WeightUpdates::PopVersion() {
  const MutexLock lock(version_mutex_);
  --num_updates_;
  versions_.pop_back();
}

void WeightUpdates::SetVersion(std::string version) {
  const MutexLock lock(version_mutex_);
  versions_.back() = std::move(version);
}

std::string WeightUpdates::version() const {
  const MutexLock lock(version_mutex_);
  return versions_.back();
}

std::string WeightUpdates::VersionOf(int64_t number) const {
  const MutexLock lock(version_mutex_);
  const int64_t first = num_updates_ + 1 - std::ssize(versions_);
  return versions_[static_cast<size_t>(std::clamp(number, first, num_updates_) - first)];
}

}  // namespace sluice
