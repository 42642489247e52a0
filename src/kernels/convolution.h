// A convolution of each channel over the last inputs of a sequence, as recurrent layers have it.
#pragma once

#include <cstdint>
#include <span>

namespace sluice::kernels {

inline constexpr int kMostConvolutionWidth = 16;

struct Convolution {
  int width = 0;                  // inputs that a result sees, the row's own last
  int64_t channels = 0;           // of the weights and of tails
  const float* weight = nullptr;  // [width, channels]
  const float* bias = nullptr;    // [channels], or null
  bool silu = false;              // of the result
};

// Where the tail after the first `rows` rows goes.
struct TailSnapshot {
  int64_t rows = 0;
  float* tail = nullptr;  // as ConvolveRows takes it
};

// Rows of one sequence, which follow each other, in place: x[r, c] = bias[c] + weight[0, c] * (the
// input of row r - width + 1) + ... + weight[width - 1, c] * x[r, c], summed in this order, for
// channels c in [begin, end); row r of x is at x + r * stride. `tail` [width - 1, channels]: the
// inputs before the first row, the latest last; then those before the row after the last one. A
// result depends on its inputs alone, wherever the rows begin. All numbers are F32.
// REQUIRES: width in [1, kMostConvolutionWidth]; 0 < rows of a snapshot <= `rows`.
void ConvolveRows(const Convolution& convolution, float* x, int64_t stride, int64_t rows,
                  int64_t begin, int64_t end, float* tail,
                  std::span<const TailSnapshot> snapshots = {});

}  // namespace sluice::kernels
