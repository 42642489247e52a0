// Recordings as traces for other programs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "recording/recording.h"

namespace sluice::recording {

// Tokens in a block of a Mooncake trace.
inline constexpr int64_t kMooncakeBlock = 512;

// Mooncake's trace: a JSON object a line, {"timestamp": milliseconds since the first request,
// "input_length": tokens, "output_length": tokens, "hash_ids": [a number for each block of 512
// tokens, the last one possibly partial; prompts with a common prefix share the first numbers]}.
// Source: the traces in github.com/kvcache-ai/Mooncake, FAST25-release.
std::string MooncakeTrace(const std::vector<RecordedRequest>& requests);

// AIPerf's trace for --custom-dataset-type mooncake_trace: as above, and "text_input" with
// `text_of` of a prompt's token ids instead of input_length and hash_ids, if it is given.
using TextOfTokens = std::function<std::string(const std::vector<int32_t>&)>;
std::string AiperfTrace(const std::vector<RecordedRequest>& requests, const TextOfTokens& text_of);

}  // namespace sluice::recording
