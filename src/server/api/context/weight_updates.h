// Replaces the weights while the server runs, in the separate steps (start, load, finish) that a
// trainer requests.
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

// Order of calls: Start; Load once, or Add as often as needed; Finish. The weights in use change
// only in Finish, so an update that fails or is not finished leaves the old ones. Start ends an
// update that is still open.
//
// Thread safety: all methods may be called from any thread. They block on each other and on the
// engine, so call them on workers.
class WeightUpdates {
 public:
  explicit WeightUpdates(UploadSettings uploads = {}) : uploads_(std::move(uploads)) {}

  void Start(Engine& engine);
  // Loads the checkpoint in `folder`, an absolute path. 400 if no update was started or the weights
  // are wrong.
  ApiStatus Load(Engine& engine, const std::string& folder);
  // Stores a piece of a checkpoint (WeightUpload) and returns its number of tensors. `sha256`: hash
  // of the piece in hexadecimal; "": not checked. 400 if no update was started, or if the piece is
  // damaged, which may then be sent again; 413 if the pieces together are too large; 507 if the
  // disk is full.
  ApiResult<int64_t> Add(Engine& engine, std::string_view piece, std::string_view sha256);
  // Loads the pieces, if there are any, and switches to the loaded weights, which are named
  // `version` ("": the old name). 400 if none are loaded or the pieces lack a tensor.
  ApiStatus Finish(Engine& engine, const std::string& version);

  // Renames the weights in use.
  void SetVersion(std::string version);
  std::string version() const;
  // Returns the name of the weights after `number` updates; if that name is not stored any longer,
  // the oldest stored name.
  std::string VersionOf(int64_t number) const;

 private:
  static constexpr size_t kMostVersions = 1000;

  // Makes the engine load `folder` in addition to the weights in use. After an error no update is
  // open.
  ApiStatus Stage(Engine& engine, const std::filesystem::path& folder) REQUIRES(update_mutex_);
  void PushVersion(const std::string& version);
  void PopVersion();

  Mutex update_mutex_;
  bool is_started_ GUARDED_BY(update_mutex_) = false;
  bool is_loaded_ GUARDED_BY(update_mutex_) = false;
  // Pieces of the open update, and pieces of the weights in use, which are read again on wake-up.
  // null: none.
  std::unique_ptr<WeightUpload> open_ GUARDED_BY(update_mutex_);
  std::unique_ptr<WeightUpload> used_ GUARDED_BY(update_mutex_);
  const UploadSettings uploads_;
  mutable Mutex version_mutex_;
  // The last kMostVersions names, oldest first. The last one belongs to the weights in use.
  std::deque<std::string> versions_ GUARDED_BY(version_mutex_) = {"default"};
  int64_t num_updates_ GUARDED_BY(version_mutex_) = 0;
};

}  // namespace sluice
