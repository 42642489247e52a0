// Computes the scores of an indexer of blocks.
#include "kernels/cpu/ops/head_dots_inl.h"

namespace sluice::kernels::SLUICE_ISA {

void HeadPanelScores(const float* q, int num_heads, int dim, const float* keys, float* scores) {
  for (int p = 0; p < kAttentionPanelPositions; p += kLanes) {
    ForEachHeadDot(q, num_heads, dim, keys + p, [&](int head, Floats dot) {
      Store(scores + head * kAttentionPanelPositions + p, dot);
    });
  }
}

}  // namespace sluice::kernels::SLUICE_ISA
