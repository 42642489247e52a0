// From a model argument (a folder, or a Hugging Face id in the local cache) to the folder that
// holds its files, without the network; hub/fetch.h downloads what is missing.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/result.h"
#include "hub/hub_environment.h"

namespace sluice {

struct ResolveOptions {
  // "models/abacus", "meta-llama/Llama-3.2-1B" or the address of its page, with or without a slash
  // at the end
  std::string argument;
  std::string download_dir = "";  // searched in place of the cache's folder; "" for the cache
  std::string revision = "";      // branch, tag or commit; "" for main
};

struct ResolvedModel {
  std::filesystem::path folder;
  std::string name;         // the argument as given; the id where it is an address
  std::string commit = "";  // of a snapshot in the cache; "" for a folder
  bool from_cache = false;
};

// Where a model argument leads.
struct ModelPlace {
  std::filesystem::path folder = {};  // of an argument that is a folder; "" for the hub's
  std::string name;
  std::string id = "";               // of the hub's
  std::string revision = "";         // asked for, by the option or by the address; "" for main
  std::filesystem::path cache = {};  // that the hub's models are kept in
};

// A folder that exists takes precedence over an id of the same spelling; of a snapshot, what the
// disk may have lost is checked. kInvalidArgument for an
// argument that is neither a path nor an id, or a revision that is no name.
Result<ModelPlace> FindModelPlace(const ResolveOptions& options, const HubEnvironment& environment);

// The snapshot of a model of the hub that is in the cache, complete or not; none, with the reason
// in `why_not`. Without a revision and without refs/main, the only snapshot there is counts. What
// the disk may have lost is checked first (hub/flush_mark.h).
// REQUIRES: place.id is not empty
Result<std::optional<ResolvedModel>> FindSnapshot(const ModelPlace& place, std::string& why_not);

// The folder, or what FindSnapshot finds. kUnavailable says which folders were searched and how to
// put the model there.
Result<ResolvedModel> ResolveModel(const ResolveOptions& options);
Result<ResolvedModel> ResolveModel(const ResolveOptions& options,
                                   const HubEnvironment& environment);

}  // namespace sluice
