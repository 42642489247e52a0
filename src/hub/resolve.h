// Finds the folder for a model argument (a folder, or a Hugging Face id in the local cache) without
// using the network. hub/fetch.h downloads missing files.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/result.h"
#include "hub/hub_environment.h"

namespace sluice {

struct ResolveOptions {
  // "models/abacus", "meta-llama/Llama-3.2-1B" or the URL of its page. A trailing slash is allowed.
  std::string argument;
  std::string download_dir = "";  // searched instead of the cache's folder; "": the cache's folder
                                  // is searched
  std::string revision = "";      // branch, tag or commit; "": main
};

struct ResolvedModel {
  std::filesystem::path folder;
  std::string name;         // the argument as given, or the id if it is a URL
  std::string commit = "";  // commit of a snapshot in the cache; "" for a folder
  bool from_cache = false;
};

// The folder or hub model that a model argument refers to.
struct ModelPlace {
  std::filesystem::path folder = {};  // the argument if it is a folder; "" for a model of the hub
  std::string name;
  std::string id = "";               // the model's id on the hub
  std::string revision = "";         // as requested by the option or the URL; "": main
  std::filesystem::path cache = {};  // cache folder for models of the hub
};

// Finds the folder or hub model that the argument refers to. An existing folder takes precedence
// over an id with the same name. If the folder is a snapshot of a cache, checks files whose data
// the disk may have lost (hub/flush_mark.h). kInvalidArgument if the argument is not a path or an
// id, or if the revision is not a valid name.
Result<ModelPlace> FindModelPlace(const ResolveOptions& options, const HubEnvironment& environment);

// Returns a hub model's snapshot in the cache, complete or not; nullopt and the reason in `why_not`
// if there is none. Without a revision and without refs/main, uses the only snapshot. First checks
// files whose data the disk may have lost (hub/flush_mark.h). REQUIRES: place.id is not empty.
Result<std::optional<ResolvedModel>> FindSnapshot(const ModelPlace& place, std::string& why_not);

// Returns the folder that the argument names, or the snapshot of the hub model that it names.
// kUnavailable if the cache lacks the snapshot; the message names the folders searched and explains
// how to get the model.
Result<ResolvedModel> ResolveModel(const ResolveOptions& options);
Result<ResolvedModel> ResolveModel(const ResolveOptions& options,
                                   const HubEnvironment& environment);

}  // namespace sluice
