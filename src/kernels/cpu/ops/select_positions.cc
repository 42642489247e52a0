// Computes the scores of an indexer.
#include "kernels/cpu/ops/head_dots_inl.h"

namespace sluice::kernels::SLUICE_ISA {

void IndexPanelScores(const float* q, const float* weights, int num_heads, int dim,
                      const float* keys, float* scores) {
  for (int p = 0; p < kAttentionPanelPositions; p += kLanes) {
    Floats sum = Zero();
    ForEachHeadDot(q, num_heads, dim, keys + p, [&](int head, Floats dot) {
      sum = MulAdd(Set(weights[head]), Max(dot, Zero()), sum);
    });
    Store(scores + p, sum);
  }
}

}  // namespace sluice::kernels::SLUICE_ISA
