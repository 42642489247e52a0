// Sends a recorded load to a server.
#pragma once

#include "base/result.h"
#include "options/settings.h"
#include "recording/recording.h"

namespace sluice::cli {

// Sends each recorded request to --url at its recorded time, divided by --speed. A recording with
// hashes only has no bodies. In that case, sends made-up completions with token ids, which share
// the same prefixes and request as many tokens as were generated. Prints how many were answered,
// and the latencies. Returns 1 if a request failed.
Result<int> ReplayLoad(const options::Settings& settings, const recording::Recording& recorded);

}  // namespace sluice::cli
