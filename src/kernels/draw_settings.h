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

// Why there is no token.
enum class DrawError : int32_t { kNone, kNan, kNoFiniteLogit };

// Of a vocabulary that kernels of devices draw from.
constexpr int64_t kMostDrawnTokens = int64_t{1} << 20;

}  // namespace sluice::kernels
