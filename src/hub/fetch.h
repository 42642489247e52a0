// Converts a model argument to a folder with the model's files. Downloads missing files into the
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
  std::string file;   // the file being downloaded
  int64_t done = 0;   // number of bytes present, over all files
  int64_t total = 0;  // number of bytes needed, over all files
};

struct FetchOptions {
  ResolveOptions model;
  ModelPart part = ModelPart::kAll;
  bool update = false;     // whether to ask the hub for a newer commit even if a complete one is
                           // present
  std::string token = "";  // overrides HF_TOKEN
  // Called once before the network is used. If it returns an error, the fetch ends with that error.
  std::function<Status()> before_download = nullptr;
  std::function<void(const FetchProgress&)> on_progress = nullptr;
};

// Like ResolveModel, but downloads missing files of `part`. Uses a complete commit in the cache
// without the network, unless `update`.
//
// However the process ends, every file in a snapshot is complete and matches its ETag. The next
// call continues partial downloads; huggingface_hub, which may use the same cache at the same time,
// can also continue them. kUnavailable: no connection, no access, no disk space, or a cache that
// cannot be written; or HF_HUB_OFFLINE is set, with the names of the missing files.
Result<ResolvedModel> FetchModel(const FetchOptions& options);
Result<ResolvedModel> FetchModel(const FetchOptions& options, const HubEnvironment& environment);

}  // namespace sluice
