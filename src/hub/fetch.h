// Turns a model argument into a folder with the model's files; missing files are downloaded into
// the Hugging Face cache.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "hub/model_files.h"
#include "hub/resolve.h"

namespace sluice {

struct FetchProgress {
  std::string file;   // being downloaded
  int64_t done = 0;   // number of bytes present, of all files
  int64_t total = 0;  // number of bytes needed, of all files
};

struct FetchOptions {
  ResolveOptions model;
  ModelPart part = ModelPart::kAll;
  bool update = false;     // ask the hub for a newer commit even if a complete one is present
  std::string token = "";  // overrides HF_TOKEN
  // Called once before the network is used; its error ends the fetch.
  std::function<Status()> before_download = nullptr;
  std::function<void(const FetchProgress&)> on_progress = nullptr;
};

// Like ResolveModel, but downloads missing files of `part`. A complete commit in the cache is used
// without the network, unless `update`.
//
// However the process ends, a file in a snapshot is complete and matches its ETag; the next call
// continues partial downloads, as does huggingface_hub, which may use the same cache at the same
// time. kUnavailable: no connection, no access, no room, a cache that cannot be written; or
// HF_HUB_OFFLINE, with the names of the missing files.
Result<ResolvedModel> FetchModel(const FetchOptions& options);
Result<ResolvedModel> FetchModel(const FetchOptions& options, const HubEnvironment& environment);

}  // namespace sluice
