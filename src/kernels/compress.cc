#include "kernels/compress.h"

#include <algorithm>
#include <cmath>

namespace sluice::kernels {
namespace {

// Adds c with score z to a softmax of one element.
void Add(float z, float c, float& largest, float& sum, float& weighted) {
  if (sum == 0) {  // empty: the first score has weight 1
    largest = z;
    sum = 1;
    weighted = c;
  } else if (z <= largest) {
    const float weight = std::exp(z - largest);
    sum += weight;
    weighted += weight * c;
  } else {
    const float factor = std::exp(largest - z);
    largest = z;
    sum = sum * factor + 1;
    weighted = weighted * factor + c;
  }
}

}  // namespace

void CompressRows(const CompressRule& rule, float* x, int64_t stride, int64_t rows, int64_t first,
                  int begin, int end, float* state, std::span<const CompressSnapshot> snapshots) {
  const int dim = rule.dim;
  const int64_t width = rule.width();
  // Copies elements [begin, end) of `count` vectors.
  const auto copy = [&](const float* from, float* to, int count) {
    for (int i = 0; i < count; ++i)
      std::copy(from + i * dim + begin, from + i * dim + end, to + i * dim + begin);
  };
  float* const next = state + int64_t{3} * dim;
  auto snapshot = snapshots.begin();
  for (int64_t row = 0; row < rows; ++row) {
    float* const c = x + row * stride;
    const float* const z = c + width;
    const int64_t place = (first + row) % rule.rate;
    const float* const bias = rule.bias + place * width;
    const int64_t own = rule.overlaps ? dim : 0;  // offset of the projection for the token's own
                                                  // entry
    for (int i = begin; i < end; ++i)
      Add(z[own + i] + bias[own + i], c[own + i], state[i], state[dim + i], state[2 * dim + i]);
    if (rule.overlaps) {
      for (int i = begin; i < end; ++i)
        Add(z[i] + bias[i], c[i], next[i], next[dim + i], next[2 * dim + i]);
    }
    if (place == rule.rate - 1) {
      for (int i = begin; i < end; ++i) c[i] = state[2 * dim + i] / state[dim + i];
      if (rule.overlaps) copy(next, state, 3);
      float* const empty = rule.overlaps ? next : state;
      for (int i = 0; i < 3; ++i) std::fill(empty + i * dim + begin, empty + i * dim + end, 0.0f);
    }
    for (; snapshot != snapshots.end() && snapshot->rows == row + 1; ++snapshot)
      copy(state, snapshot->state, 3 * rule.projections());
  }
}

void FinishEntry(float* entry, int dim, const float* weight, float eps, int64_t position,
                 std::span<const float> frequencies) {
  double squares = 0;
  for (int i = 0; i < dim; ++i) squares += double{entry[i]} * entry[i];
  const auto factor = static_cast<float>(1 / std::sqrt(squares / dim + eps));
  for (int i = 0; i < dim; ++i) entry[i] = entry[i] * factor * weight[i];
  float* pair = entry + dim - 2 * std::ssize(frequencies);
  for (const float frequency : frequencies) {
    const float angle = static_cast<float>(position) * frequency;
    const float cosine = std::cos(angle), sine = std::sin(angle);
    const float a = pair[0], b = pair[1];
    pair[0] = a * cosine - b * sine;
    pair[1] = a * sine + b * cosine;
    pair += 2;
  }
}

}  // namespace sluice::kernels
