// Lists and removes models in a Hugging Face cache.
#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice {

struct CachedSnapshot {
  std::string commit;
  std::vector<std::string> references = {};  // branches and tags that point to the commit
  bool complete = false;                     // whether it can be served without a download
};

struct CachedModel {
  std::string id;
  std::filesystem::path folder = {};
  int64_t bytes = 0;        // space on disk, including incomplete files
  std::time_t changed = 0;  // time of the last download
  std::vector<CachedSnapshot> snapshots = {};
};

// Returns the models in a cache; empty if the folder does not exist.
std::vector<CachedModel> ListCachedModels(const std::filesystem::path& cache);

// Removes a model, or one revision and its files that no other revision uses. Returns the number of
// freed bytes. kNotFound names the existing models or revisions; kUnavailable if another program is
// downloading the model.
Result<int64_t> RemoveCachedModel(const std::filesystem::path& cache, const std::string& id,
                                  const std::string& revision);

}  // namespace sluice
