// Turns a model argument (a folder, or a Hugging Face id in the local cache) into the folder with
// its files, without the network; hub/fetch.h downloads missing files.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/result.h"
#include "hub/hub_environment.h"

namespace sluice {

struct ResolveOptions {
  // "models/abacus", "meta-llama/Llama-3.2-1B" or the URL of its page, with or without a trailing
  // slash.
  std::string argument;
  std::string download_dir = "";  // searched instead of the cache's folder; "": the cache
  std::string revision = "";      // branch, tag or commit; "": main
};

struct ResolvedModel {
  std::filesystem::path folder;
  std::string name;         // the argument as given; the id if it is a URL
  std::string commit = "";  // of a snapshot in the cache; "" for a folder
  bool from_cache = false;
};

// What a model argument refers to.
struct ModelPlace {
  std::filesystem::path folder = {};  // if the argument is a folder; "" for a model of the hub
  std::string name;
  std::string id = "";               // of a model of the hub
  std::string revision = "";         // requested by the option or the URL; "": main
  std::filesystem::path cache = {};  // the cache for models of the hub
};

// An existing folder takes precedence over an id with the same spelling. If it is a snapshot of a
// cache, checks files that the disk may have lost. kInvalidArgument if the argument is neither a
// path nor an id, or if the revision is not a valid name.
Result<ModelPlace> FindModelPlace(const ResolveOptions& options, const HubEnvironment& environment);

// The snapshot of a hub model in the cache, complete or not; nullopt with the reason in `why_not`
// if there is none. Without a revision and without refs/main, the only snapshot is used. First
// checks files that the disk may have lost (hub/flush_mark.h). REQUIRES: place.id is not empty
Result<std::optional<ResolvedModel>> FindSnapshot(const ModelPlace& place, std::string& why_not);

// The folder, or the result of FindSnapshot. kUnavailable names the searched folders and says how
// to get the model.
Result<ResolvedModel> ResolveModel(const ResolveOptions& options);
Result<ResolvedModel> ResolveModel(const ResolveOptions& options,
                                   const HubEnvironment& environment);

}  // namespace sluice
