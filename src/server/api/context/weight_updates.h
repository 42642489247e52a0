// An update of the weights, step by step as a trainer asks for it.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/mutex.h"
#include "engine/engine.h"
#include "server/api/common/api_error.h"
#include "server/api/context/weight_upload.h"

namespace sluice {

// Start; Load once, or Add as often as needed; Finish. Nothing that computes is changed before
// Finish: an update that fails or is not finished leaves the old weights. A Start that finds an
// update open ends that one.
//
// Thread safety: all methods may be called from any thread; they wait for each other and for the
// engine: for workers.
class WeightUpdates {
 public:
  explicit WeightUpdates(UploadSettings uploads = {}) : uploads_(std::move(uploads)) {}

  void Start(Engine& engine);
  // Loads the checkpoint in `folder`, an absolute path. 400 if no update was started or the weights
  // are wrong.
  ApiStatus Load(Engine& engine, const std::string& folder);
  // Keeps a piece of a checkpoint (WeightUpload), and returns its number of tensors. `sha256`: of
  // the piece, in hexadecimal digits; "": not known. 400 if no update was started, or the piece is
  // damaged, which may be sent again; 413 if the pieces are too large together; 507 for a full
  // disk.
  ApiResult<int64_t> Add(Engine& engine, std::string_view piece, std::string_view sha256);
  // Loads the pieces, if there are any. From now on the loaded weights compute, and are called
  // `version`; "": as before. 400 if none are loaded, or if pieces lack a tensor.
  ApiStatus Finish(Engine& engine, const std::string& version);

  // Renames the weights that compute.
  void SetVersion(std::string version);
  std::string version() const;
  // The name of the weights that `number` updates had replaced. Of old ones, the oldest name that
  // is known.
  std::string VersionOf(int64_t number) const;

 private:
  static constexpr size_t kMostVersions = 1000;

  // Has the engine load `folder` beside what computes. After an error no update is open.
  ApiStatus Stage(Engine& engine, const std::filesystem::path& folder) REQUIRES(update_mutex_);
  void PushVersion(const std::string& version);
  void PopVersion();

  Mutex update_mutex_;
  bool is_started_ GUARDED_BY(update_mutex_) = false;
  bool is_loaded_ GUARDED_BY(update_mutex_) = false;
  // The pieces of the open update, and those of the weights that compute, which waking up reads
  // again; null: none.
  std::unique_ptr<WeightUpload> open_ GUARDED_BY(update_mutex_);
  std::unique_ptr<WeightUpload> used_ GUARDED_BY(update_mutex_);
  const UploadSettings uploads_;
  mutable Mutex version_mutex_;
  // The last ones, in order; that of the weights that compute is the last.
  std::deque<std::string> versions_ GUARDED_BY(version_mutex_) = {"default"};
  int64_t num_updates_ GUARDED_BY(version_mutex_) = 0;
};

}  // namespace sluice
