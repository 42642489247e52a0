// Dot products of an indexer's queries with a panel of keys. The lanes are positions, so each
// position has one chain of multiply-adds per head.
#pragma once

#include "kernels/cpu/ops/ops.h"

#include "kernels/kernel_table.h"

namespace sluice::kernels {
namespace {

template <int kCount, typename Use>
inline void ComputeHeadDots(const float* q, int dim, const float* keys, int head, const Use& use) {
  Floats dots[kCount];
  for (int h = 0; h < kCount; ++h) dots[h] = Zero();
  for (int d = 0; d < dim; ++d) {
    const Floats key = Load(keys + d * kAttentionPanelPositions);
    for (int h = 0; h < kCount; ++h) dots[h] = MulAdd(Set(q[(head + h) * dim + d]), key, dots[h]);
  }
  for (int h = 0; h < kCount; ++h) use(head + h, dots[h]);
}

// Calls use(head, dot) for each head, in ascending order. dot: q[head] . key of kLanes positions.
// q: [num_heads, dim]. keys: of the first position, in a panel F32 [dim][16].
template <typename Use>
inline void ForEachHeadDot(const float* q, int num_heads, int dim, const float* keys,
                           const Use& use) {
  constexpr int kHeads = 4;  // number of heads computed together
  int head = 0;
  for (; head + kHeads <= num_heads; head += kHeads)
    ComputeHeadDots<kHeads>(q, dim, keys, head, use);
  for (; head < num_heads; ++head) ComputeHeadDots<1>(q, dim, keys, head, use);
}

}  // namespace
}  // namespace sluice::kernels
