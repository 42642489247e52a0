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
  std::vector<std::string> references = {};  // branches and tags that point to it
  bool complete = false;                     // can be served without a download
};

struct CachedModel {
  std::string id;
  std::filesystem::path folder = {};
  int64_t bytes = 0;        // on the disk, including incomplete files
  std::time_t changed = 0;  // time of the last download
  std::vector<CachedSnapshot> snapshots = {};
};

// The models of a cache with their ids; empty if the folder does not exist.
std::vector<CachedModel> ListCachedModels(const std::filesystem::path& cache);

// Removes a model, or one revision and its files that no other revision uses. Returns the number of
// freed bytes. kNotFound names the existing models or revisions; kUnavailable if another program is
// downloading it.
Result<int64_t> RemoveCachedModel(const std::filesystem::path& cache, const std::string& id,
                                  const std::string& revision);

}  // namespace sluice
