// Files of a model's folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.h"

namespace sluice {

// Reads the file `name` (a relative path) of a model's folder, as ReadFile does. Fails with
// kInvalidData if `name` links out of the folder, because an untrusted model must not expose files
// of this machine through its chat template. Links to blobs of a Hugging Face cache, where the
// files of snapshots are stored, are allowed.
Result<std::string> ReadModelFile(const std::filesystem::path& folder,
                                  const std::filesystem::path& name, uint64_t max_bytes);

}  // namespace sluice
