// Reads files of a model folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.h"

namespace sluice {

// Reads the file `name` (a relative path) of a model folder, as ReadFile does. kInvalidData if
// `name` links out of the folder: an untrusted model must not expose other files through its chat
// template. Links to the blobs of a Hugging Face cache, where snapshots store their files, are
// allowed.
Result<std::string> ReadModelFile(const std::filesystem::path& folder,
                                  const std::filesystem::path& name, uint64_t max_bytes);

}  // namespace sluice
