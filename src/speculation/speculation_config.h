// How tokens are proposed that a step then verifies.
#pragma once

#include <cstdint>

namespace sluice {

// The names and defaults are those of vLLM's --speculative-config.
struct SpeculationConfig {
  enum class Method {
    kNone,
    kNgram,   // what followed the last occurrence of the last tokens in the same sequence
    kSuffix,  // what mostly followed them, in the same sequence and in past answers
  };

  Method method = Method::kNone;
  int num_tokens = 0;  // the most that are proposed of one sequence in a step
  // Tokens that have to be found again, at least; and from which on more do not count.
  int lookup_min = 5;
  int lookup_max = 5;
  // kSuffix: the most draft tokens for each token that was matched, and the least probability of
  // one, by what followed so far.
  double max_spec_factor = 1;
  double min_token_prob = 0.1;
  int64_t cached_tokens = 0;  // of past answers that are remembered

  bool operator==(const SpeculationConfig&) const = default;
};

// The most of num_tokens and of lookup_max.
inline constexpr int kMaxSpeculativeTokens = 64;

}  // namespace sluice
