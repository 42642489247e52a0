// How a matrix product is divided: pure functions of its shape, for launchers and hosts. The split
// of k determines the order of a sum and depends only on the weights. The tile size also depends on
// the number of rows, but does not affect the order. Includes nothing, because the CUDA compiler
// would have to read it.
#pragma once

#include <stdint.h>

#include "kernels/cuda/device_kernels.h"

namespace sluice::device {

// Rows of the weights per block.
constexpr int kLinearTileRows = 64;
// Up to this many rows of x, the ranges of a split run in parallel. Each range is computed by
// separate blocks, which write partial sums; the last block to finish adds them. With more rows,
// there are enough blocks, and each block computes all ranges.
constexpr int64_t kMaxParallelSplitRows = 64;

// Maximum number of tiles of products whose ranges run in parallel.
constexpr int64_t kMostSplitTiles = 4096;
constexpr int64_t kLinearCounterBytes = kMostSplitTiles * 4;  // LinearArgs::counters

struct LinearSplit {
  int64_t stages;            // number of stages in k
  int64_t stages_per_range;  // number of stages per range; the last range may have fewer
  int64_t ranges;
};

constexpr int LinearCodeBits(ElementType type) {
  if (type == ElementType::kF4E2M1 || type == ElementType::kInt4) return 4;
  return type == ElementType::kBF16 ? 16 : 8;
}

// Elements of k per stage in shared memory.
constexpr int LinearStageK(ElementType type) {
  return type == ElementType::kBF16 ? 64 : 128;
}

constexpr int64_t LinearRowTiles(int64_t n) {
  return (n + kLinearTileRows - 1) / kLinearTileRows;
}

// Splits k into ranges, so that the product of a narrow matrix also has enough blocks for a large
// device: four blocks for each of 132 multiprocessors. Each range is so long that starting and
// combining ranges is a small part of the work.
constexpr LinearSplit LinearSplitOf(int64_t n, int64_t k, ElementType type) {
  constexpr int64_t kBlocks = 512, kMinStages = 8, kMaxRanges = 16;
  const int64_t tiles = LinearRowTiles(n);
  const int64_t stages = (k + LinearStageK(type) - 1) / LinearStageK(type);
  int64_t ranges = (kBlocks + tiles - 1) / tiles;
  if (ranges > stages / kMinStages) ranges = stages / kMinStages;
  if (ranges > kMaxRanges) ranges = kMaxRanges;
  if (ranges < 1) ranges = 1;
  const int64_t per_range = (stages + ranges - 1) / ranges;
  return {stages, per_range, (stages + per_range - 1) / per_range};
}

constexpr LinearSplit LinearSplitOf(const Weights& w) {
  return LinearSplitOf(w.whole_n > 0 ? w.whole_n : w.n, w.k, w.type);
}

// Returns the rows of x per block: 16, 32, 64 or 128. `rows`: average number of rows of x per
// matrix.
constexpr int LinearTileTokens(int64_t rows) {
  return rows <= 16 ? 16 : rows <= 32 ? 32 : rows <= 64 ? 64 : 128;
}

// Returns the number of tiles of x in a grid. For a grouped product, it is the maximum over all
// distributions of rows to experts.
constexpr int64_t LinearTokenTiles(int64_t m, int64_t num_experts, int tokens) {
  if (num_experts == 0) return (m + tokens - 1) / tokens;
  const int64_t busy = m < num_experts ? m : num_experts;
  return busy + (m - busy) / tokens;
}

}  // namespace sluice::device
