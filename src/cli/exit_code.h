// Exit codes of the program.
#pragma once

#include <string>

#include "base/result.h"

namespace sluice::cli {

inline constexpr int kExitUsage = 2;

int ExitCode(ErrorCode code);

// The table of `sluice help exit-codes`.
std::string ExitCodeHelp();

}  // namespace sluice::cli
