// Settings of speculative decoding without a draft model.
#pragma once

#include <cstdint>

namespace sluice {

// The names and defaults of members are those of vLLM's --speculative-config.
struct SpeculationConfig {
  enum class Method {
    kNone,
    kNgram,  // the tokens after the last occurrence of the last tokens in the same sequence
    // The most frequent tokens after such occurrences, in the same sequence and in past answers.
    kSuffix,
  };

  Method method = Method::kNone;
  int num_tokens = 0;  // maximum draft tokens per sequence and step
  // Minimum length of a match. Matches longer than lookup_max count as lookup_max.
  int lookup_min = 5;
  int lookup_max = 5;
  // For kSuffix: maximum number of draft tokens per matched token, and minimum probability of a
  // draft token, estimated from the tokens that followed before.
  double max_spec_factor = 1;
  double min_token_prob = 0.1;
  int64_t cached_tokens = 0;  // maximum tokens of past answers that are stored

  bool operator==(const SpeculationConfig&) const = default;
};

// Upper limit for num_tokens and for lookup_max.
inline constexpr int kMaxSpeculativeTokens = 64;

}  // namespace sluice
