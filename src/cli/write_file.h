// Files of results.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice::cli {

// Why `file`, which `option` names, could not be written, and the exit code that goes with errno
// `number` (base/write_error.h); 0: the system did not say.
Error WriteFailure(std::string_view option, const std::filesystem::path& file, int number);

// Writes a whole file in place of what is there.
Status WriteResultFile(std::string_view option, const std::filesystem::path& file,
                       std::string_view text);

}  // namespace sluice::cli
