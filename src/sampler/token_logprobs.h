// The logprobs of a token and of alternatives at its position.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace sluice {

struct TokenLogprobs {
  int32_t token = 0;
  float logprob = 0;
  int32_t rank = 0;  // 1 for the most likely token
  // The best tokens, descending, as many as requested; or those of
  // SamplingParams::logprob_token_ids.
  std::vector<std::pair<int32_t, float>> top;
};

}  // namespace sluice
