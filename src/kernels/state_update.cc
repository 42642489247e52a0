#include "kernels/state_update.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/vector_kernel.h"

namespace sluice::kernels {

namespace reference {

// Updates `count` columns. `state`: address of the first column; rows are `stride` elements apart.
void UpdateStateColumns(const StateTokens& tokens, bool corrects, float skip, int64_t key_dim,
                        int64_t stride, int64_t count, float* state) {
  for (int64_t row = 0; row < tokens.rows; ++row) {
    const float* const q = tokens.q + row * tokens.key_stride;
    const float* const k = tokens.k + row * tokens.key_stride;
    float* const v = tokens.v + row * tokens.value_stride;
    const float* const decay = tokens.decay + row * tokens.gate_stride;
    const float rate = tokens.rate[row * tokens.gate_stride];
    for (int64_t i = 0; i < count; ++i) {
      float known = 0;
      for (int64_t key = 0; corrects && key < key_dim; ++key)
        known += state[key * stride + i] * (tokens.decays_keys ? decay[key] * k[key] : k[key]);
      const float write = rate * (v[i] - (tokens.decays_keys ? known : decay[0] * known));
      float sum = skip * v[i];
      for (int64_t key = 0; key < key_dim; ++key) {
        float& number = state[key * stride + i];
        number = decay[tokens.decays_keys ? key : 0] * number + k[key] * write;
        sum += q[key] * number;
      }
      v[i] = sum;
    }
  }
}

void ScaleRowToLength(float* x, int64_t cols, float eps, float factor) {
  double squares = 0;
  for (int64_t i = 0; i < cols; ++i) squares += static_cast<double>(x[i]) * x[i];
  const float scale = factor / std::sqrt(static_cast<float>(squares) + eps);
  for (int64_t i = 0; i < cols; ++i) x[i] *= scale;
}

}  // namespace reference

SLUICE_VECTOR_KERNEL(UpdateStateColumns);
SLUICE_LANE_SUM_KERNEL(ScaleRowToLength);

void UpdateState(const StateTokens& tokens, bool corrects, float skip, int64_t key_dim,
                 int64_t head_dim, int64_t begin, int64_t end, float* state,
                 std::span<const MatrixSnapshot> snapshots) {
  int64_t done = 0;
  const auto run_to = [&](int64_t rows) {
    if (rows <= done) return;
    StateTokens part = tokens;
    part.q += done * tokens.key_stride;
    part.k += done * tokens.key_stride;
    part.v += done * tokens.value_stride + begin;
    part.decay += done * tokens.gate_stride;
    part.rate += done * tokens.gate_stride;
    part.rows = rows - done;
    kUpdateStateColumns(part, corrects, skip, key_dim, head_dim, end - begin, state + begin);
    done = rows;
  };
  for (;;) {
    // Finds the nearest snapshot that is not reached yet. There are only a few snapshots.
    const MatrixSnapshot* next = nullptr;
    for (const MatrixSnapshot& snapshot : snapshots) {
      if (snapshot.rows > done && (next == nullptr || snapshot.rows < next->rows)) next = &snapshot;
    }
    if (next == nullptr) break;
    CHECK_LE(next->rows, tokens.rows);
    run_to(next->rows);
    for (const MatrixSnapshot& snapshot : snapshots) {
      if (snapshot.rows != done) continue;
      for (int64_t key = 0; key < key_dim; ++key) {
        std::copy(state + key * head_dim + begin, state + key * head_dim + end,
                  snapshot.matrix + key * head_dim + begin);
      }
    }
  }
  run_to(tokens.rows);
}

void ScaleToLength(float* x, int64_t cols, float eps, float factor) {
  kScaleRowToLength(x, cols, eps, factor);
}

}  // namespace sluice::kernels
