// A request's validated settings for choosing tokens and ending sequences.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/shared_list.h"

namespace sluice {

// The logits from which an answer's logprobs are computed: the model's logits, or the logits from
// which the token was drawn (after bias, penalties, temperature and cuts, which set -infinity).
// With kRawLogits and kProcessedLogits, the logits themselves are returned.
enum class LogprobsMode { kRawLogprobs, kProcessedLogprobs, kRawLogits, kProcessedLogits };

// Whether the mode uses the model's logits, before sampling changes them.
constexpr bool IsRaw(LogprobsMode mode) {
  return mode == LogprobsMode::kRawLogprobs || mode == LogprobsMode::kRawLogits;
}
// Whether the mode returns logprobs instead of logits.
constexpr bool IsNormalized(LogprobsMode mode) {
  return mode == LogprobsMode::kRawLogprobs || mode == LogprobsMode::kProcessedLogprobs;
}

// Maximum number of tokens in SamplingParams::logprob_token_ids.
inline constexpr size_t kMostLogprobTokens = 128;

// Smaller positive temperatures are raised to this value, as in vLLM: dividing logits by a smaller
// one would exceed the range of float.
inline constexpr double kSmallestTemperature = 0.01;

struct SamplingParams {
  double temperature = 1.0;  // 0: greedy
  double top_p = 1.0;        // (0, 1]
  int64_t top_k = 0;         // 0: off
  double min_p = 0.0;        // [0, 1]
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  double repetition_penalty = 1.0;                   // > 0
  std::optional<int64_t> seed;                       // sequence j of a request uses seed + j
  SharedList<std::pair<int32_t, float>> logit_bias;  // pairs of a token and the value added to its
                                                     // logit
  std::optional<SharedList<int32_t>> allowed_token_ids;
  SharedList<std::vector<int32_t>> bad_words;  // token sequences that the output must not contain

  int64_t max_tokens = 16;  // >= 1
  int64_t min_tokens = 0;   // end tokens are masked until this many tokens are generated
  bool ignore_eos = false;
  SharedList<int32_t> stop_token_ids;

  // Number of best tokens to return logprobs for, besides the chosen one; -1: the whole vocabulary.
  // Prompt logprobs always use the raw logits.
  std::optional<int32_t> logprobs;
  // Distinct tokens whose logprobs are returned instead of those of the best tokens, in this order;
  // may be empty.
  SharedList<int32_t> logprob_token_ids;
  LogprobsMode logprobs_mode = LogprobsMode::kRawLogprobs;
  std::optional<int32_t> prompt_logprobs;
};

}  // namespace sluice
