// The program's exit codes.
#pragma once

#include <string>

#include "base/result.h"

namespace sluice::cli {

inline constexpr int kExitUsage = 2;

int ExitCode(ErrorCode code);

// Returns the table of `sluice help exit-codes`.
std::string ExitCodeHelp();

}  // namespace sluice::cli
