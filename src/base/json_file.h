// The small JSON files of a model's folder.
#pragma once

#include <filesystem>

#include "base/json.h"
#include "base/result.h"

namespace sluice {

// Reads a JSON file that must hold an object. NaN, Infinity and -Infinity, which Python's json
// writes, become strings. kNotFound if the file does not exist; kInvalidData, with its name as
// `param`, if it holds something else.
Result<json::Value> ReadJsonObject(const std::filesystem::path& path);

}  // namespace sluice
