// Converts recordings to the trace formats of other programs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "recording/recording.h"

namespace sluice::recording {

// Number of tokens in a block of a Mooncake trace.
inline constexpr int64_t kMooncakeBlock = 512;

// Returns a Mooncake trace: one JSON object per line, {"timestamp": milliseconds since the first
// request, "input_length": tokens, "output_length": tokens, "hash_ids": [a number for each block of
// 512 tokens, the last one possibly partial; prompts with a common prefix share the first
// numbers]}. Source: the traces in github.com/kvcache-ai/Mooncake, FAST25-release.
std::string MooncakeTrace(const std::vector<RecordedRequest>& requests);

// Returns an AIPerf trace for --custom-dataset-type mooncake_trace. Format as MooncakeTrace. If
// `text_of` is given, "text_input" with the prompt's text replaces input_length and hash_ids.
using TextOfTokens = std::function<std::string(const std::vector<int32_t>&)>;
std::string AiperfTrace(const std::vector<RecordedRequest>& requests, const TextOfTokens& text_of);

}  // namespace sluice::recording
