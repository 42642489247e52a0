// Writes result files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice::cli {

// Returns the error for `file`, which `option` names, if it could not be written. The exit code
// depends on errno `number` (base/write_error.h); 0: unknown.
Error WriteFailure(std::string_view option, const std::filesystem::path& file, int number);

// Writes a whole file. Replaces an existing one.
Status WriteResultFile(std::string_view option, const std::filesystem::path& file,
                       std::string_view text);

}  // namespace sluice::cli
