// From a model argument to a folder that holds its files: what is missing is downloaded into the
// Hugging Face cache.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "hub/model_files.h"
#include "hub/resolve.h"

namespace sluice {

struct FetchProgress {
  std::string file;   // that is being downloaded
  int64_t done = 0;   // bytes of all files that are there
  int64_t total = 0;  // bytes of all files that are needed
};

struct FetchOptions {
  ResolveOptions model;
  ModelPart part = ModelPart::kAll;
  bool update = false;     // ask the hub for a newer commit although there is one that is complete
  std::string token = "";  // overrides HF_TOKEN
  // Called once before the network is used; an error of it ends the fetch.
  std::function<Status()> before_download = nullptr;
  std::function<void(const FetchProgress&)> on_progress = nullptr;
};

// As ResolveModel, and downloads what is missing of `part`. A commit in the cache that is complete
// is used without the network, unless `update`.
//
// Whatever ends the process: a file in a snapshot is whole and of the content that its ETag
// promises, and what came of others is continued by the next call, or by huggingface_hub, which may
// work on the same cache at the same time. kUnavailable: no connection, no access, no room, a cache
// that cannot be written; or HF_HUB_OFFLINE, with the names of what is missing.
Result<ResolvedModel> FetchModel(const FetchOptions& options);
Result<ResolvedModel> FetchModel(const FetchOptions& options, const HubEnvironment& environment);

}  // namespace sluice
