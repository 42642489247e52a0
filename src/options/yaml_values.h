// Reads YAML files as JSON values.
#pragma once

#include <filesystem>

#include "base/json.h"
#include "base/result.h"

namespace sluice::options {

// Returns the top-level mapping of a .yaml or .yml file; empty for an empty file. Plain scalars
// have the type that they look like, quoted ones are text. kInvalidArgument names file and line.
Result<json::Value> ReadYamlObject(const std::filesystem::path& file);

}  // namespace sluice::options
