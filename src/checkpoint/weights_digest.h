// A digest of what a model computes with: its weights and its configuration.
#pragma once

#include <atomic>
#include <filesystem>
#include <string>

#include "base/result.h"

namespace sluice {

// "sha256:" and 64 hexadecimal digits: the SHA-256 of a line "SHA-256  name" for each *.safetensors
// file and config.json of the folder, sorted by name. Renamed or resharded files give another
// digest. Reads all files; about 1.5 GB/s a core with SHA instructions. kNotFound if the folder has
// no weights. kCancelled soon after `stop` is set (may be null).
Result<std::string> WeightsDigest(const std::filesystem::path& folder,
                                  const std::atomic<bool>* stop = nullptr);

}  // namespace sluice
