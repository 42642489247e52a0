#include "kernels/convolution.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/vector_kernel.h"

namespace sluice::kernels {

namespace reference {

// Convolves one row. inputs[j]: the row that weight j multiplies. y may be the same as the last
// input row.
void ConvolveRow(const float* const* inputs, int width, const float* weight, int64_t weight_stride,
                 const float* bias, int64_t count, bool silu, float* y) {
  for (int64_t i = 0; i < count; ++i) {
    float sum = bias == nullptr ? 0 : bias[i];
    for (int j = 0; j < width; ++j) sum += weight[j * weight_stride + i] * inputs[j][i];
    y[i] = silu ? sum / (1.0f + std::exp(-sum)) : sum;
  }
}

}  // namespace reference

SLUICE_VECTOR_KERNEL(ConvolveRow);

namespace {

constexpr int64_t kBlock = 128;  // channels per pass; during a pass, the new tail is buffered

}  // namespace

void ConvolveRows(const Convolution& convolution, float* x, int64_t stride, int64_t rows,
                  int64_t begin, int64_t end, float* tail,
                  std::span<const TailSnapshot> snapshots) {
  const int width = convolution.width;
  CHECK(width >= 1 && width <= kMostConvolutionWidth, "a convolution over {} inputs", width);
  const int64_t channels = convolution.channels;
  for (int64_t first = begin; first < end; first += kBlock) {
    const int64_t count = std::min(kBlock, end - first);
    // Returns row `row`, counted from the first row of x; negative rows are in the tail.
    const auto input = [&](int64_t row) -> const float* {
      return row >= 0 ? x + row * stride + first : tail + (row + width - 1) * channels + first;
    };
    const auto copy_tail = [&](int64_t row, float* to, int64_t to_stride) {
      for (int j = 0; j < width - 1; ++j)
        std::copy_n(input(row - width + 1 + j), count, to + j * to_stride);
    };
    for (const TailSnapshot& snapshot : snapshots)
      copy_tail(snapshot.rows, snapshot.tail + first, channels);
    float next[(kMostConvolutionWidth - 1) * kBlock];
    copy_tail(rows, next, kBlock);
    // Starts with the last row, because earlier rows are still needed as inputs.
    for (int64_t row = rows; row-- > 0;) {
      const float* inputs[kMostConvolutionWidth];
      for (int j = 0; j < width; ++j) inputs[j] = input(row - width + 1 + j);
      kConvolveRow(inputs, width, convolution.weight + first, channels,
                   convolution.bias == nullptr ? nullptr : convolution.bias + first, count,
                   convolution.silu, x + row * stride + first);
    }
    for (int j = 0; j < width - 1; ++j)
      std::copy_n(next + j * kBlock, count, tail + j * channels + first);
  }
}

}  // namespace sluice::kernels
