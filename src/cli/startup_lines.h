// What a server says before it loads: who it is, what it was asked, and what of that acts.
#pragma once

#include <string>
#include <vector>

#include "options/settings.h"

namespace sluice::cli {

// Lets log lines have the form that the dialect's own program gives them.
void UseLogStyleOf(options::Dialect dialect);

// All of it, by the log.
void LogStartup(const options::Settings& settings);

// `{'model_tag': 'm', 'port': 8000}`: what differs from the defaults, as vLLM writes it.
std::string NonDefaultArguments(const options::Settings& settings);

// One block: what acts, what is mapped, what has no effect and why. Empty where nothing was given.
std::vector<std::string> EffectBlock(const options::Settings& settings);

}  // namespace sluice::cli
