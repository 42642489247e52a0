// Reloading the configuration file while the server runs.
#pragma once

#include "options/settings.h"

namespace sluice::cli {

// Drops log lines below --log-level.
void UseLogLevelOf(const options::Settings& settings);

// Reads the file of --config again and takes --log-level from it, unless a flag or a variable has
// set it, which take precedence. Other options whose values have changed are named in a warning:
// they take effect at the next start. Where the file cannot be used the level stays, and an error
// in the log says why. `settings`: those of the start. Thread safety: one call at a time.
void ReloadLogLevel(const options::Settings& settings);

}  // namespace sluice::cli
