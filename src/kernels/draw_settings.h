// How a token is drawn from a row of logits, as samplers, models and kernels tell each other. Read
// by the CUDA compiler too: free of large includes.
#pragma once

#include <stdint.h>

namespace sluice::kernels {

// The settings of sampler/sampling_params.h, as DrawToken (sampler/draw.h) uses them.
struct DrawSettings {
  float scale;     // 1 / temperature; 0: the largest, the first of equals
  float farthest;  // -log(min_p); infinity: off
  int32_t top_k;   // 0: off
  double top_p;    // 1: off
  double uniform;  // the row's random number, in [0, 1)
};

// Why there is no token; kNothingAllowed: what is done to the row (DrawExtras) leaves none.
enum class DrawError : int32_t { kNone, kNan, kNoFiniteLogit, kNothingAllowed };

// Which logits a draw tells of: the model's, but for those that a constraint forbids, or those that
// the token was drawn from, divided by the temperature and minus infinity where they were cut off.
enum class LogprobsOf : int32_t { kNone, kRaw, kDrawn };

// What a row's draw has beside its settings: what is done to the logits before (ProcessLogits of
// sampler/logits_processor.h), and what is wanted of them besides the token. Places count words of
// an array of the step. Of a mask bit i % 32 of word i / 32 is token i's, 1 where it may be drawn.
struct DrawExtras {
  int32_t mask = -1;       // where the mask of a constraint begins; -1: none
  int32_t draw_mask = -1;  // of all that may be drawn: the same one, or one that forbids more
  // Two words each: a token, and the bits of the F32 that is added to its logit, or minus infinity,
  // which removes it. No token twice.
  int32_t biases = 0, num_biases = 0;
  // Two words each: a token of the sequence, and how often its output has it. No token twice.
  int32_t counts = 0, num_counts = 0;
  float repetition = 1, frequency = 0, presence = 0;  // penalties of those, after the biases
  int32_t is_changed = 0;                             // of the above there is something
  LogprobsOf logprobs = LogprobsOf::kNone;
  int32_t num_top = 0;  // of the largest logits, at most kMostTopLogits
};
constexpr int kMostTopLogits = 128;

struct TopLogit {
  int32_t token;
  float logit;
};
// The logprob of logit x is x - largest - log(sum).
struct DrawnLogprobs {
  double sum;     // of exp(x - largest) over the row
  float largest;  // of the row
  float chosen;   // the token's logit
  int64_t rank;   // 1: no logit is larger
};

// The largest vocabulary that device kernels draw from.
constexpr int64_t kMostDrawnTokens = int64_t{1} << 20;

}  // namespace sluice::kernels
