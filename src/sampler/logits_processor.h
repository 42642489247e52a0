// What is done to the logits before a token is chosen: masks, bias, penalties.
#pragma once

#include <cstdint>
#include <span>

#include "sampler/sampling_params.h"
#include "sampler/token_counts.h"

namespace sluice {

// The tokens of the sequence whose next token is chosen.
struct TokenHistory {
  std::span<const int32_t> tokens;  // the prompt, then the output
  int64_t num_prompt_tokens = 0;

  std::span<const int32_t> output() const {
    return tokens.subspan(static_cast<size_t>(num_prompt_tokens));
  }
};

bool HasPenalties(const SamplingParams& params);
// Whether ProcessLogits would change anything.
bool NeedsProcessing(const SamplingParams& params, const TokenHistory& history);

// Logits of tokens whose bit in `mask` (constraints/constraint.h) is 0 become -infinity.
void MaskByBits(std::span<const uint32_t> mask, std::span<float> logits);

// In this order: everything but allowed_token_ids, completions of bad_words, and `end_tokens`
// before min_tokens become -infinity; logit_bias (clamped to +-100) is added; repetition (prompt
// and output), frequency and presence penalty (output) apply. `counts` belongs to the sequence and
// is brought up to date where there are penalties.
void ProcessLogits(const SamplingParams& params, const TokenHistory& history,
                   std::span<const int32_t> end_tokens, TokenCounts& counts,
                   std::span<float> logits);

}  // namespace sluice
