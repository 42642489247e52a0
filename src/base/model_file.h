// Files of a model's folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.h"

namespace sluice {

// Reads the file `name` (a relative path) of a model's folder, as ReadFile does. kInvalidData names
// one that links out of the folder, unless it leads to a blob of a Hugging Face cache, where the
// files of snapshots lie: a model from elsewhere must not show files of this machine to whoever
// asks for its chat template.
Result<std::string> ReadModelFile(const std::filesystem::path& folder,
                                  const std::filesystem::path& name, uint64_t max_bytes);

}  // namespace sluice
