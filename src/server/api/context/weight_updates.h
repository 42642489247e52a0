// An update of the weights, step by step as a trainer asks for it.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>

#include "base/mutex.h"
#include "engine/engine.h"
#include "server/api/common/api_error.h"

namespace sluice {

// Start, Load once, Finish. Nothing that computes is changed before Finish: an update that fails or
// is not finished leaves the old weights. A Start that finds an update open ends that one.
//
// Thread safety: all methods may be called from any thread; they wait for each other and for the
// engine: for workers.
class WeightUpdates {
 public:
  void Start(Engine& engine);
  // Loads the checkpoint in `folder`, an absolute path. 400 if no update was started or the weights
  // are wrong.
  ApiStatus Load(Engine& engine, const std::string& folder);
  // From now on the loaded weights compute, and are called `version`; "": as before. 400 if none
  // are loaded.
  ApiStatus Finish(Engine& engine, const std::string& version);

  // Renames the weights that compute.
  void SetVersion(std::string version);
  std::string version() const;
  // The name of the weights that `number` updates had replaced. Of old ones, the oldest name that
  // is known.
  std::string VersionOf(int64_t number) const;

 private:
  static constexpr size_t kMostVersions = 1000;

  void PushVersion(const std::string& version);
  void PopVersion();

  Mutex update_mutex_;
  bool is_started_ GUARDED_BY(update_mutex_) = false;
  bool is_loaded_ GUARDED_BY(update_mutex_) = false;
  mutable Mutex version_mutex_;
  // The last ones, in order; that of the weights that compute is the last.
  std::deque<std::string> versions_ GUARDED_BY(version_mutex_) = {"default"};
  int64_t num_updates_ GUARDED_BY(version_mutex_) = 0;
};

}  // namespace sluice
