// Reloads the configuration file while the server runs.
#pragma once

#include "options/settings.h"

namespace sluice::cli {

// Drops log lines below --log-level.
void UseLogLevelOf(const options::Settings& settings);

// Reads the file of --config again and applies its --log-level, unless a flag or a variable has set
// it, which take precedence. A warning names other options whose values have changed: they take
// effect at the next start. If the file cannot be used, the level stays, and an error is logged.
// `settings`: those of the start. Thread safety: one call at a time.
void ReloadLogLevel(const options::Settings& settings);

}  // namespace sluice::cli
