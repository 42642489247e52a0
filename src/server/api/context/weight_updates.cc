#include "server/api/context/weight_updates.h"

#include <algorithm>
#include <array>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <openssl/sha.h>

#include "base/ascii.h"
#include "base/hex.h"
#include "base/list_folder.h"
#include "checkpoint/checkpoint.h"
namespace sluice {
namespace {

// Maximum bytes of tensor names and shapes, in addition to the tensors' data.
constexpr uint64_t kMostHeaderBytes = uint64_t{16} << 20;

std::string Sha256Of(std::string_view bytes) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  return HexDigits(digest);
}

ApiStatus CheckFolder(const std::string& folder) {
  const std::filesystem::path path(folder);
  std::error_code error;
  if (!path.is_absolute() || !std::filesystem::is_directory(path, error))
    return BadParameter("expected the absolute path of a folder of this machine", "path", folder);
  for (const std::filesystem::path& file : ListFolder(path, error)) {
    if (file.extension() == ".safetensors") return {};
  }
  return BadParameter("the folder has no safetensors files", "path", folder);
}

}  // namespace

void WeightUpdates::Start(Engine& engine) {
  const MutexLock lock(update_mutex_);
  engine.DropStagedWeights();
  open_.reset();
  is_started_ = true;
  is_loaded_ = false;
}

ApiStatus WeightUpdates::Load(Engine& engine, const std::string& folder) {
  const MutexLock lock(update_mutex_);
  if (!is_started_) return BadRequest("No update is open; POST /start_weight_update first.");
  if (is_loaded_)
    return BadRequest(
        "An update loads one folder; POST /finish_weight_update, or start a new update.");
  if (open_ != nullptr)
    return BadRequest(
        "This update has already received pieces; POST /finish_weight_update, or start a new "
        "update.");
  API_RETURN_IF_ERROR(CheckFolder(folder));
  API_RETURN_IF_ERROR(Stage(engine, folder));
  is_loaded_ = true;
  return {};
}

ApiResult<int64_t> WeightUpdates::Add(Engine& engine, std::string_view piece,
                                      std::string_view sha256) {
  if (!sha256.empty() && AsciiLower(sha256) != Sha256Of(piece)) {
    return BadParameter(
        fmt::format("the body's SHA-256 is {}, which differs from the header; send the piece again",
                    Sha256Of(piece)),
        "X-Content-SHA256", std::string(sha256.substr(0, 64)));
  }
  const MutexLock lock(update_mutex_);
  if (!is_started_) return BadRequest("No update is open; POST /start_weight_update first.");
  if (is_loaded_)
    return BadRequest(
        "This update has already loaded a folder; POST /finish_weight_update, or start a new "
        "update.");
  const auto refuse = [](const Error& error, int full) {
    ApiError refusal = FromError(error);
    refusal.status = error.code == ErrorCode::kResourceExhausted ? full : 400;
    if (refusal.status < 500) refusal.type = "BadRequestError";
    if (refusal.status == 507) refusal.type = "InsufficientStorageError";
    return tl::unexpected<ApiError>(std::move(refusal));
  };
  if (open_ == nullptr) {
    uint64_t most = uploads_.most_bytes;
    if (most == 0) {
      const Result<Checkpoint> present = Checkpoint::Open(engine.weights_folder());
      most = present ? 2 * static_cast<uint64_t>(present->total_bytes()) + kMostHeaderBytes : 0;
    }
    Result<std::unique_ptr<WeightUpload>> made = WeightUpload::Make(uploads_.parent, most);
    if (!made) return refuse(made.error(), 507);
    open_ = *std::move(made);
  }
  const Result<int64_t> added = open_->Add(piece);
  if (added) return *added;
  return refuse(added.error(), added.error().param == WeightUpload::kTooLarge ? 413 : 507);
}

ApiStatus WeightUpdates::Stage(Engine& engine, const std::filesystem::path& folder) {
  if (const Status staged = engine.StageWeights(folder); !staged) {
    is_started_ = false;
    ApiError error = FromError(staged.error());
    // A damaged file, or one of another model, is the trainer's mistake and not the server's.
    if (staged.error().code == ErrorCode::kInvalidData) error.status = 400;
    if (error.status == 400) error.type = "BadRequestError";
    error.message = fmt::format("the old weights remain in use: {}", error.message);
    return tl::unexpected<ApiError>(std::move(error));
  }
  return {};
}

ApiStatus WeightUpdates::Finish(Engine& engine, const std::string& version) {
  const MutexLock lock(update_mutex_);
  if (!is_started_) return BadRequest("No update is open; POST /start_weight_update first.");
  if (open_ != nullptr && !is_loaded_) {
    if (const Status sealed = open_->Seal(); !sealed)
      return tl::unexpected<ApiError>(FromError(sealed.error()));
    const ApiStatus staged = Stage(engine, open_->folder());
    if (!staged) {
      open_.reset();
      return staged;
    }
    is_loaded_ = true;
  }
  if (!is_loaded_) {
    is_started_ = false;
    return BadRequest(
        "Nothing was loaded in this update. The update ends, and the old weights remain in use.");
  }
  // Sets the version before any token of the new weights is reported.
  PushVersion(version);
  if (const Status committed = engine.CommitWeights(); !committed) {
    PopVersion();
    return tl::unexpected<ApiError>(FromError(committed.error()));
  }
  is_started_ = is_loaded_ = false;
  used_ = std::move(open_);
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
