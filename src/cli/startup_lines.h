// Lines that a server logs before it loads: its version, its arguments, and their effects.
#pragma once

#include <string>
#include <vector>

#include "cli/option_effects.h"
#include "options/settings.h"

namespace sluice::cli {

// Gives log lines the format of the dialect's own program.
void UseLogStyleOf(options::Dialect dialect);

// Logs version, arguments and effects.
void LogStartup(const options::Settings& settings);

// Returns, in vLLM's format, the arguments that differ from the defaults: `{'model_tag': 'm',
// 'port': 8000}`.
std::string NonDefaultArguments(const options::Settings& settings);

// Returns warnings such as "--cpu-offload-gb 4 has no effect: ...", one line per reason.
std::vector<std::string> UnansweredLines(const OptionEffects& effects);

// Lists the options that have an effect, those that are mapped, and those that have no effect and
// request nothing. Includes the reasons, and the number of options without effect. Empty if no
// options were given.
std::vector<std::string> EffectBlock(const OptionEffects& effects);

}  // namespace sluice::cli
