// How tokens are chosen and when a sequence ends: one request's settings, already checked.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/shared_list.h"

namespace sluice {

// What the logprobs of answers are computed from: the model's logits, or those that the token was
// drawn from (after bias, penalties, temperature and cuts, with minus infinity for what was cut
// off). With kRawLogits and kProcessedLogits those logits themselves are returned.
enum class LogprobsMode { kRawLogprobs, kProcessedLogprobs, kRawLogits, kProcessedLogits };

// True for modes that report the logits as they are, before sampling changes them.
constexpr bool IsRaw(LogprobsMode mode) {
  return mode == LogprobsMode::kRawLogprobs || mode == LogprobsMode::kRawLogits;
}
// Logprobs, not logits.
constexpr bool IsNormalized(LogprobsMode mode) {
  return mode == LogprobsMode::kRawLogprobs || mode == LogprobsMode::kProcessedLogprobs;
}

// A temperature above 0 but below this counts as this, as in vLLM: divided by a smaller one, logits
// leave the range of float.
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
  SharedList<std::pair<int32_t, float>> logit_bias;  // token, added to its logit
  std::optional<SharedList<int32_t>> allowed_token_ids;
  SharedList<std::vector<int32_t>> bad_words;  // token sequences that must not be completed

  int64_t max_tokens = 16;  // >= 1
  int64_t min_tokens = 0;   // end tokens are masked before
  bool ignore_eos = false;
  SharedList<int32_t> stop_token_ids;

  // Logprobs of the chosen token and of the `*logprobs` best; -1: the whole vocabulary. Those of
  // the prompt are always of the raw logits.
  std::optional<int32_t> logprobs;
  LogprobsMode logprobs_mode = LogprobsMode::kRawLogprobs;
  std::optional<int32_t> prompt_logprobs;
};

}  // namespace sluice
