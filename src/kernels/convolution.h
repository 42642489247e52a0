// The causal convolution of recurrent layers: each channel is convolved over the last inputs of its
// sequence.
#pragma once

#include <cstdint>
#include <span>

namespace sluice::kernels {

inline constexpr int kMostConvolutionWidth = 16;

struct Convolution {
  int width = 0;                  // inputs per result; the last one is the row's own
  int64_t channels = 0;           // number of channels in the weights and in the tail
  const float* weight = nullptr;  // [width, channels]
  const float* bias = nullptr;    // [channels], or null
  bool silu = false;              // whether to apply SiLU to the result
};

// Where to store the tail after the first `rows` rows.
struct TailSnapshot {
  int64_t rows = 0;
  float* tail = nullptr;  // layout of ConvolveRows' `tail`
};

// Convolves consecutive rows of one sequence in place: x[r, c] = bias[c] + weight[0, c] * (the
// input of row r - width + 1) + ... + weight[width - 1, c] * x[r, c], summed in this order, for all
// channels c in [begin, end); row r of x is at x + r * stride. `tail` [width - 1, channels]: on
// entry the inputs before the first row, the latest last; on return the last width - 1 inputs. A
// result depends only on its inputs, not on how the sequence is divided into calls. All arrays are
// F32. REQUIRES: width in [1, kMostConvolutionWidth]; 0 < rows of a snapshot <= `rows`.
void ConvolveRows(const Convolution& convolution, float* x, int64_t stride, int64_t rows,
                  int64_t begin, int64_t end, float* tail,
                  std::span<const TailSnapshot> snapshots = {});

}  // namespace sluice::kernels
