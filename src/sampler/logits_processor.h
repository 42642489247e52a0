// Changes the logits before a token is chosen: masks, biases, penalties.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "sampler/sampling_params.h"
#include "sampler/token_counts.h"

namespace sluice {

// The tokens of the sequence for which a token is chosen.
struct TokenHistory {
  std::span<const int32_t> tokens;  // the prompt, then the output
  int64_t num_prompt_tokens = 0;

  std::span<const int32_t> output() const {
    return tokens.subspan(static_cast<size_t>(num_prompt_tokens));
  }
};

// Limit of the magnitude of logit_bias.
inline constexpr float kLargestBias = 100;

bool HasPenalties(const SamplingParams& params);
// Whether ProcessLogits would change anything after this number of output tokens.
bool NeedsProcessing(const SamplingParams& params, int64_t num_output_tokens);

// Calls visit(token) for the last token of each entry of bad_words whose preceding tokens are at
// the end of `output`.
template <typename Visit>
void ForEachCompletion(std::span<const std::vector<int32_t>> bad_words,
                       std::span<const int32_t> output, const Visit& visit) {
  for (const std::vector<int32_t>& word : bad_words) {
    if (word.empty() || word.size() - 1 > output.size()) continue;
    const std::span<const int32_t> tail = output.last(word.size() - 1);
    if (std::equal(tail.begin(), tail.end(), word.begin())) visit(word.back());
  }
}

// Whether `mask` (constraints/constraint.h) allows only tokens of `end_tokens`.
bool AllowsOnly(std::span<const int32_t> end_tokens, std::span<const uint32_t> mask);
// Sets the logits of tokens whose bit in `mask` (constraints/constraint.h) is 0 to -infinity.
void MaskByBits(std::span<const uint32_t> mask, std::span<float> logits);

// Changes `logits` in this order: sets to -infinity the logits of tokens outside allowed_token_ids,
// of tokens that would complete an entry of bad_words and, before min_tokens, of `end_tokens`; adds
// logit_bias (limited to +-100); applies the penalties for repetition (prompt and output),
// frequency and presence (output). `counts` belongs to the sequence and is updated if there are
// penalties.
void ProcessLogits(const SamplingParams& params, const TokenHistory& history,
                   std::span<const int32_t> end_tokens, TokenCounts& counts,
                   std::span<float> logits);

}  // namespace sluice
