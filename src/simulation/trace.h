// Reads traces of requests.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "simulation/replay.h"

namespace sluice {

// Reads a trace in Mooncake's format: one line of JSON for each request, with timestamp
// (milliseconds, ascending), input_length, output_length (tokens), and optionally hash_ids, one per
// 512 tokens of the prompt. Returns at most `most` requests; the first one arrives at 0.
// kInvalidData names the line and field.
Result<std::vector<ReplayRequest>> ReadTrace(std::string_view text, std::string_view place,
                                             int64_t most);

// Replaces the arrivals by those of `rate` requests per second with exponential intervals.
void SetRate(double rate, std::vector<ReplayRequest>& requests);

}  // namespace sluice
