// How a token is drawn from a row of logits: data that samplers, models and kernels share. nvcc
// also compiles this header, so it includes only small headers.
#pragma once

#include <stdint.h>

namespace sluice::kernels {

// The settings of sampler/sampling_params.h in the form that DrawToken (sampler/draw.h) uses.
struct DrawSettings {
  float scale;     // 1 / temperature; 0: greedy, which takes the first of equal logits
  float farthest;  // -log(min_p); infinity: off
  int32_t top_k;   // 0: off
  double top_p;    // 1: off
  double uniform;  // the row's random number, in [0, 1)
};

// Why no token was drawn. kNothingAllowed: masks and biases (DrawExtras) removed every token.
enum class DrawError : int32_t { kNone, kNan, kNoFiniteLogit, kNothingAllowed };

// The logits from which logprobs are computed. kRaw: the model's logits, without those that a
// constraint forbids. kDrawn: the logits that the token was drawn from, divided by the temperature;
// minus infinity for tokens that were cut off.
enum class LogprobsOf : int32_t { kNone, kRaw, kDrawn };

// Per-row inputs of a draw besides DrawSettings: changes to the logits before the draw
// (ProcessLogits of sampler/logits_processor.h) and the requested logprobs. Offsets count 32-bit
// words of an array of the step. In a mask, bit i % 32 of word i / 32 belongs to token i; 1:
// allowed.
struct DrawExtras {
  int32_t mask = -1;  // offset of the constraint's mask; -1: none
  // Mask used for the draw: the constraint's mask, or one that forbids more tokens.
  int32_t draw_mask = -1;
  // Two words per entry: a token, and the bits of an F32 that is added to its logit; minus infinity
  // removes the token. Tokens are distinct.
  int32_t biases = 0, num_biases = 0;
  // Two words per entry: a token of the sequence, and how often the output contains it. Tokens are
  // distinct.
  int32_t counts = 0, num_counts = 0;
  // Penalties for the tokens in `counts`, applied after the biases.
  float repetition = 1, frequency = 0, presence = 0;
  int32_t is_changed = 0;  // whether any member above has an effect
  LogprobsOf logprobs = LogprobsOf::kNone;
  int32_t num_top = 0;  // number of top logits to return, at most kMostTopLogits
};
constexpr int kMostTopLogits = 128;

struct TopLogit {
  int32_t token;
  float logit;
};
// The logprob of logit x is x - largest - log(sum).
struct DrawnLogprobs {
  double sum;     // sum of exp(x - largest) over the row
  float largest;  // largest logit of the row
  float chosen;   // the token's logit
  int64_t rank;   // 1: no logit is larger
};

// Maximum vocabulary size for draws on a device.
constexpr int64_t kMostDrawnTokens = int64_t{1} << 20;

}  // namespace sluice::kernels
