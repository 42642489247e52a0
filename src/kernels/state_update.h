// The recurrences of Gated DeltaNet, Kimi Delta Attention and Mamba-2: a matrix for each head that
// every token decays, adds to and reads.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/state_tokens.h"

namespace sluice::kernels {

// Where the matrix after the first `rows` rows goes.
struct MatrixSnapshot {
  int64_t rows = 0;
  float* matrix = nullptr;
};

// Computes, for each token in turn, in columns [begin, end) of the state S [key_dim, head_dim]:
//   w = rate * (v - decay * k S) where `corrects`, else rate * v
//   S = decay * S + k w;  v = q S + skip * v
// (Gated DeltaNet, Mamba-2), or where StateTokens::decays_keys says so, with a decay of each key,
//   w = rate * (v - (decay * k) S);  S = decay * S + k w;  v = q S
// (Kimi Delta Attention), with sums over the keys in their order. The state after a token depends
// on the state before it and on the token alone, and a column on its own numbers: results have the
// same bits whatever is computed at once. All numbers are F32.
void UpdateState(const StateTokens& tokens, bool corrects, float skip, int64_t key_dim,
                 int64_t head_dim, int64_t begin, int64_t end, float* state,
                 std::span<const MatrixSnapshot> snapshots = {});

// x [cols] times factor / sqrt(sum of squares + eps), in place.
void ScaleToLength(float* x, int64_t cols, float eps, float factor);

}  // namespace sluice::kernels
