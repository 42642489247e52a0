// Computes the scores of an indexer. The lanes are positions, so each position has one chain of
// multiply-adds per head.
#include "kernels/cpu/ops/ops.h"

#include "kernels/kernel_table.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

constexpr int kHeads = 4;  // number of heads computed together

template <int kCount>
inline Floats HeadScores(const float* q, const float* weights, int dim, const float* keys,
                         Floats sum) {
  Floats dots[kCount];
  for (int h = 0; h < kCount; ++h) dots[h] = Zero();
  for (int d = 0; d < dim; ++d) {
    const Floats key = Load(keys + d * kAttentionPanelPositions);
    for (int h = 0; h < kCount; ++h) dots[h] = MulAdd(Set(q[h * dim + d]), key, dots[h]);
  }
  for (int h = 0; h < kCount; ++h) sum = MulAdd(Set(weights[h]), Max(dots[h], Zero()), sum);
  return sum;
}

}  // namespace

void IndexPanelScores(const float* q, const float* weights, int num_heads, int dim,
                      const float* keys, float* scores) {
  for (int p = 0; p < kAttentionPanelPositions; p += kLanes) {
    Floats sum = Zero();
    int head = 0;
    for (; head + kHeads <= num_heads; head += kHeads)
      sum = HeadScores<kHeads>(q + head * dim, weights + head, dim, keys + p, sum);
    for (; head < num_heads; ++head)
      sum = HeadScores<1>(q + head * dim, weights + head, dim, keys + p, sum);
    Store(scores + p, sum);
  }
}

}  // namespace sluice::kernels::SLUICE_ISA
