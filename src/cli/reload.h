// Reloads the configuration file while the server runs.
#pragma once

#include "options/settings.h"

namespace sluice::cli {

// Sets the log level to --log-level.
void UseLogLevelOf(const options::Settings& settings);

// Reads the file of --config again and applies its --log-level, unless a flag or a variable has set
// the level, which takes precedence. A warning names other options whose values have changed: they
// take effect at the next start. If the file cannot be used, the level is unchanged, and an error
// is logged. `settings`: the settings at startup. Thread safety: one call at a time.
void ReloadLogLevel(const options::Settings& settings);

}  // namespace sluice::cli
