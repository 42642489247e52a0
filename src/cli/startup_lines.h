// Lines that a server logs before it loads: its version, its arguments, and their effects.
#pragma once

#include <string>
#include <vector>

#include "options/settings.h"

namespace sluice::cli {

// Gives log lines the format of the dialect's own program.
void UseLogStyleOf(options::Dialect dialect);

// Logs all of them.
void LogStartup(const options::Settings& settings);

// `{'model_tag': 'm', 'port': 8000}`: arguments that differ from the defaults, in vLLM's format.
std::string NonDefaultArguments(const options::Settings& settings);

// Notes on options that ask for more devices than are used: `--tensor-parallel-size 2 has no
// effect: ...`.
std::vector<std::string> UnusedDevices(const options::Settings& settings);

// The options that act, are mapped, or have no effect with the reason. Empty if none was given.
std::vector<std::string> EffectBlock(const options::Settings& settings);

}  // namespace sluice::cli
