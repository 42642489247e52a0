// Computes the scores of an indexer of blocks. The lanes are positions, so each position has one
// chain of multiply-adds per head.
#include "kernels/cpu/ops/ops.h"

#include "kernels/kernel_table.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

constexpr int kHeads = 4;  // number of heads computed together

template <int kCount>
inline void HeadScores(const float* q, int dim, const float* keys, float* scores) {
  Floats dots[kCount];
  for (int h = 0; h < kCount; ++h) dots[h] = Zero();
  for (int d = 0; d < dim; ++d) {
    const Floats key = Load(keys + d * kAttentionPanelPositions);
    for (int h = 0; h < kCount; ++h) dots[h] = MulAdd(Set(q[h * dim + d]), key, dots[h]);
  }
  for (int h = 0; h < kCount; ++h) Store(scores + h * kAttentionPanelPositions, dots[h]);
}

}  // namespace

void HeadPanelScores(const float* q, int num_heads, int dim, const float* keys, float* scores) {
  for (int p = 0; p < kAttentionPanelPositions; p += kLanes) {
    int head = 0;
    for (; head + kHeads <= num_heads; head += kHeads)
      HeadScores<kHeads>(q + head * dim, dim, keys + p,
                         scores + head * kAttentionPanelPositions + p);
    for (; head < num_heads; ++head)
      HeadScores<1>(q + head * dim, dim, keys + p, scores + head * kAttentionPanelPositions + p);
  }
}

}  // namespace sluice::kernels::SLUICE_ISA
