// From a model argument (a folder, or a Hugging Face id in the local cache) to the folder that
// holds its files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

// The environment variables that say where the Hugging Face cache is; "" where not set.
struct HubEnvironment {
  std::string hf_hub_cache = "";           // HF_HUB_CACHE
  std::string huggingface_hub_cache = "";  // HUGGINGFACE_HUB_CACHE, its older name
  std::string hf_home = "";                // HF_HOME
  std::string xdg_cache_home = "";         // XDG_CACHE_HOME
  std::string home = "";                   // HOME

  static HubEnvironment OfProcess();
  // The cache's folder: HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub,
  // ~/.cache/huggingface/hub.
  std::filesystem::path CacheFolder() const;
};

struct ResolveOptions {
  std::string
      argument;  // "models/abacus", "meta-llama/Llama-3.2-1B", with or without a slash at the end
  std::string download_dir = "";  // searched in place of the cache's folder; "" for the cache
  std::string revision = "";      // branch, tag or commit; "" for main
};

struct ResolvedModel {
  std::filesystem::path folder;
  std::string name;         // the argument as given
  std::string commit = "";  // of a snapshot in the cache; "" for a folder
  bool from_cache = false;
};

// A folder that exists takes precedence over an id of the same spelling. Nothing is downloaded:
// kUnavailable says which folders were searched and how to put the model there. kInvalidArgument
// for an argument that is neither a path nor an id, or a revision that is no name. Without a
// revision and without refs/main, the only snapshot there is counts.
Result<ResolvedModel> ResolveModel(const ResolveOptions& options);
Result<ResolvedModel> ResolveModel(const ResolveOptions& options,
                                   const HubEnvironment& environment);

// "org/name" or "name", of letters, digits, '-', '_' and '.', at most 96 characters a part.
bool IsHubId(std::string_view text);

}  // namespace sluice
