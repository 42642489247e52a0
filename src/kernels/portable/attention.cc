#include <cstring>

#include "kernels/portable/portable.h"

namespace sluice::kernels::portable {
namespace {

constexpr int kSumLanes = 8;
// The operations on each number are the same, whether the compiler uses one register or several.
typedef float Eight __attribute__((vector_size(32)));

float SumOf(const float* weights, int begin, int end) {
  float lanes[kSumLanes] = {};
  int i = begin;
  for (; i < end && i % kSumLanes != 0; ++i) lanes[i % kSumLanes] += weights[i];
  Eight sums;
  std::memcpy(&sums, lanes, sizeof(sums));
  for (; i + kSumLanes <= end; i += kSumLanes) {
    Eight values;
    std::memcpy(&values, weights + i, sizeof(values));
    sums += values;
  }
  std::memcpy(lanes, &sums, sizeof(sums));
  for (; i < end; ++i) lanes[i % kSumLanes] += weights[i];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

}  // namespace

void SumWeights(const AttentionChunkArgs& args) {
  for (int row = 0; row < args.rows; ++row) {
    if (args.limits[row] == 0) continue;
    args.sum[row] = SumOf(args.scores + row * kAttentionChunk, args.starts[row], args.limits[row]);
  }
}

}  // namespace sluice::kernels::portable
