// Lines that a server logs before it loads: its version, its arguments, and their effects.
#pragma once

#include <string>
#include <vector>

#include "cli/option_effects.h"
#include "options/settings.h"

namespace sluice::cli {

// Gives log lines the format of the dialect's own program.
void UseLogStyleOf(options::Dialect dialect);

// Logs all of them.
void LogStartup(const options::Settings& settings);

// `{'model_tag': 'm', 'port': 8000}`: arguments that differ from the defaults, in vLLM's format.
std::string NonDefaultArguments(const options::Settings& settings);

// Warnings: "--cpu-offload-gb 4 has no effect: ...", a line for each reason.
std::vector<std::string> UnansweredLines(const OptionEffects& effects);

// The options that act, are mapped, or have no effect and ask for nothing, with the reason; and how
// many have none. Empty if none was given.
std::vector<std::string> EffectBlock(const OptionEffects& effects);

}  // namespace sluice::cli
