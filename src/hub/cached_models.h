// The models in a Hugging Face cache: what there is, and removing it.
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
  std::vector<std::string> references = {};  // branches and tags that name it
  bool complete = false;                     // whether it can be served without a download
};

struct CachedModel {
  std::string id;
  std::filesystem::path folder = {};
  int64_t bytes = 0;        // on the disk, with what came of files that are not whole
  std::time_t changed = 0;  // when it was last downloaded to
  std::vector<CachedSnapshot> snapshots = {};
};

// The models of a cache by their ids; none where there is no such folder.
std::vector<CachedModel> ListCachedModels(const std::filesystem::path& cache);

// Removes a model, or one revision of it with what no other one uses. Returns the bytes that are
// free now. kNotFound names what is there; kUnavailable while another program downloads it.
Result<int64_t> RemoveCachedModel(const std::filesystem::path& cache, const std::string& id,
                                  const std::string& revision);

}  // namespace sluice
