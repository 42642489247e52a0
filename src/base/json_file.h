// Reads the small JSON files of a model folder.
#pragma once

#include <filesystem>

#include "base/json.h"
#include "base/result.h"

namespace sluice {

// Reads a JSON file that must contain an object. NaN, Infinity and -Infinity, which Python's json
// writes, become strings. kNotFound if the file does not exist; kInvalidData, with the file's name
// as `param`, if it contains anything but an object.
Result<json::Value> ReadJsonObject(const std::filesystem::path& path);

}  // namespace sluice
