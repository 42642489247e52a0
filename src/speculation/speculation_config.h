// Settings of speculative decoding without a draft model.
#pragma once

#include <cstdint>

namespace sluice {

// The names and defaults are those of vLLM's --speculative-config.
struct SpeculationConfig {
  enum class Method {
    kNone,
    kNgram,   // what followed the last occurrence of the last tokens in the same sequence
    kSuffix,  // what followed most often, in the same sequence and in past answers
  };

  Method method = Method::kNone;
  int num_tokens = 0;  // maximum draft tokens per sequence and step
  // Minimum length of a match; longer matches than lookup_max do not count more.
  int lookup_min = 5;
  int lookup_max = 5;
  // kSuffix: maximum number of draft tokens per matched token, and the minimum probability of a
  // draft token, from what followed so far.
  double max_spec_factor = 1;
  double min_token_prob = 0.1;
  int64_t cached_tokens = 0;  // maximum tokens of past answers that are stored

  bool operator==(const SpeculationConfig&) const = default;
};

// Maximum of num_tokens and of lookup_max.
inline constexpr int kMaxSpeculativeTokens = 64;

}  // namespace sluice
