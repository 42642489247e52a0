// The recurrences of Gated DeltaNet, Kimi Delta Attention and Mamba-2: each head has a state
// matrix; every token decays it, adds to it and reads it.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/state_tokens.h"

namespace sluice::kernels {

// Where to store the matrix after the first `rows` rows.
struct MatrixSnapshot {
  int64_t rows = 0;
  float* matrix = nullptr;
};

// Computes, for one token after another, columns [begin, end) of the state S [key_dim, head_dim]:
//   w = rate * (v - decay * k S) if `corrects`, else rate * v
//   S = decay * S + k w;  v = q S + skip * v
// (Gated DeltaNet, Mamba-2), or, if StateTokens::decays_keys, with one decay per key:
//   w = rate * (v - (decay * k) S);  S = decay * S + k w;  v = q S
// (Kimi Delta Attention). Sums over the keys are in ascending order. The state after a token
// depends only on the previous state and on that token, and each column only on its own elements.
// So results are bit-identical for any division of the work. All arrays are F32.
void UpdateState(const StateTokens& tokens, bool corrects, float skip, int64_t key_dim,
                 int64_t head_dim, int64_t begin, int64_t end, float* state,
                 std::span<const MatrixSnapshot> snapshots = {});

// Multiplies x [cols] by factor / sqrt(sum of squares + eps), in place.
void ScaleToLength(float* x, int64_t cols, float eps, float factor);

}  // namespace sluice::kernels
