#include "kernels/residual_streams.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "kernels/sigmoid.h"

namespace sluice::kernels {
namespace {

constexpr int kLanes = 16;  // partial sums, so that compilers can use vectors

float SumOf(const std::array<float, kLanes>& lanes) {
  std::array<float, kLanes> sums = lanes;
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i)
      sums[static_cast<size_t>(i)] += sums[static_cast<size_t>(i + half)];
  }
  return sums[0];
}

float Dot(const float* a, const float* b, int64_t count) {
  std::array<float, kLanes> lanes = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane)
      lanes[static_cast<size_t>(lane)] += a[i + lane] * b[i + lane];
  }
  for (int lane = 0; i < count; ++i, ++lane) lanes[static_cast<size_t>(lane)] += a[i] * b[i];
  return SumOf(lanes);
}

// Makes the sums of the rows and columns of a matrix [count, count] nearly 1.
void Normalize(const StreamRule& rule, float* mix) {
  const int count = rule.count;
  for (int row = 0; row < count; ++row) {
    float* const values = mix + row * count;
    const float largest = *std::max_element(values, values + count);
    float sum = 0;
    for (int k = 0; k < count; ++k) sum += values[k] = std::exp(values[k] - largest);
    for (int k = 0; k < count; ++k) values[k] = values[k] / sum + rule.eps;
  }
  // Divides each of the sums over `step`, whose elements are `stride` apart.
  const auto divide = [&](int step, int stride) {
    for (int i = 0; i < count; ++i) {
      float sum = 0;
      for (int k = 0; k < count; ++k) sum += mix[i * step + k * stride];
      for (int k = 0; k < count; ++k) mix[i * step + k * stride] /= sum + rule.eps;
    }
  };
  divide(1, count);
  for (int i = 1; i < rule.iterations; ++i) {
    divide(count, 1);
    divide(1, count);
  }
}

void CollapseRow(const StreamRule& rule, const StreamParameters& parameters, const float* streams,
                 float* mixes, float* out) {
  const int count = rule.count;
  const int64_t all = count * rule.width;
  const float mean = Dot(streams, streams, all) / static_cast<float>(all);
  const float factor = 1.0f / std::sqrt(mean + rule.norm_eps);
  const auto input = [&](int index, int scale) {
    return Dot(parameters.matrix + index * all, streams, all) * factor * parameters.scale[scale] +
           parameters.base[index];
  };
  std::array<float, kMostStreams> weights;
  for (int k = 0; k < count; ++k) weights[static_cast<size_t>(k)] = Sigmoid(input(k, 0)) + rule.eps;
  if (mixes != nullptr) {
    for (int k = 0; k < count; ++k) mixes[k] = 2 * Sigmoid(input(count + k, 1));
    for (int k = 0; k < count * count; ++k) mixes[count + k] = input(2 * count + k, 2);
    Normalize(rule, mixes + count);
  }
  for (int64_t i = 0; i < rule.width; ++i) out[i] = weights[0] * streams[i];
  for (int k = 1; k < count; ++k) {
    const float weight = weights[static_cast<size_t>(k)];
    const float* const stream = streams + k * rule.width;
    for (int64_t i = 0; i < rule.width; ++i) out[i] += weight * stream[i];
  }
}

void CheckRule(const StreamRule& rule) {
  CHECK(rule.count >= 1 && rule.count <= kMostStreams, "1 to {} streams, not {}", kMostStreams,
        rule.count);
}

}  // namespace

void CollapseStreams(ThreadPool& pool, const StreamRule& rule, const StreamParameters& parameters,
                     const float* streams, int64_t rows, float* mixes, float* out) {
  CheckRule(rule);
  const int64_t all = rule.count * rule.width, of_mixes = int64_t{rule.count} * (1 + rule.count);
  pool.ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      CollapseRow(rule, parameters, streams + row * all,
                  mixes == nullptr ? nullptr : mixes + row * of_mixes, out + row * rule.width);
    }
  });
}

void ExpandStreams(ThreadPool& pool, const StreamRule& rule, const float* mixes, const float* delta,
                   int64_t rows, float* streams) {
  CheckRule(rule);
  const int count = rule.count;
  const int64_t width = rule.width;
  pool.ParallelFor(rows, 4, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* const result = mixes + row * count * (1 + count);
      const float* const mix = result + count;
      const float* const own = delta + row * width;
      float* const of_row = streams + row * count * width;
      for (int64_t i = 0; i < width; ++i) {
        std::array<float, kMostStreams> old;
        for (int j = 0; j < count; ++j) old[static_cast<size_t>(j)] = of_row[j * width + i];
        for (int k = 0; k < count; ++k) {
          float sum = result[k] * own[i];
          for (int j = 0; j < count; ++j) sum += mix[j * count + k] * old[static_cast<size_t>(j)];
          of_row[k * width + i] = sum;
        }
      }
    }
  });
}

}  // namespace sluice::kernels
