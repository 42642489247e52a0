// --record and --receipts of `sluice serve`.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/configs.h"
#include "cli/serving.h"
#include "options/settings.h"

namespace sluice::cli {

// Starts the recorder and loads the key, as the options say, for a server that has not loaded its
// model yet.
Status UseRecordingOptions(const options::Settings& settings, const ModelArgument& model,
                           Serving& serving);
// Checks the same without starting anything.
Status CheckRecordingOptions(const options::Settings& settings);
// kUnsupported if one of the options is given: with --models they have no place.
Status RefuseRecordingOptions(const options::Settings& settings);

// The options that decide what the engine computes, as words of a command line. No other option is
// recorded: they may hold keys.
std::vector<std::string> EngineWords(const options::Settings& settings);

}  // namespace sluice::cli
