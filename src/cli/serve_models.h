// `sluice serve --models FILE`: several models behind one door.
#pragma once

#include <chrono>

#include "base/result.h"
#include "options/settings.h"

namespace sluice::cli {

// Serves until it is asked to end; the exit code. `start`: of the process. REQUIRES: signals are
// blocked (BlockSignals).
Result<int> RunServeModels(const options::Settings& settings,
                           std::chrono::steady_clock::time_point start);

}  // namespace sluice::cli
