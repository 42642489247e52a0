// `sluice serve --models FILE`: one server for several models.
#pragma once

#include <chrono>

#include "base/result.h"
#include "options/settings.h"

namespace sluice::cli {

// Serves until a signal ends it. Returns the exit code. `start`: when the process started.
// REQUIRES: signals are blocked (BlockSignals).
Result<int> RunServeModels(const options::Settings& settings,
                           std::chrono::steady_clock::time_point start);

}  // namespace sluice::cli
