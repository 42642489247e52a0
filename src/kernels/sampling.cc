#include "kernels/sampling.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "kernels/draw_weights.h"
#include "kernels/vector_kernel.h"

namespace sluice::kernels {

namespace reference {

int64_t ArgMax(const float* x, int64_t count) {
  int64_t best = -1;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isnan(x[i]) && (best < 0 || x[i] > x[best])) best = i;
  }
  return best < 0 ? 0 : best;
}

float Largest(const float* x, int64_t count) {
  return x[ArgMax(x, count)];
}

// Sum of exp(x - shift).
double SumExp(const float* x, int64_t count, float shift) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp(x[i] - shift);
  return sum;
}

int64_t CountNan(const float* x, int64_t count) {
  return std::count_if(x, x + count, [](float value) { return std::isnan(value); });
}

int64_t CountGreater(const float* x, int64_t count, float value) {
  int64_t greater = 0;
  for (int64_t i = 0; i < count; ++i) greater += x[i] > value;
  return greater;
}

void DrawWeights(const float* logits, int64_t count, float largest, float scale, float farthest,
                 float smallest, float* weights) {
  for (int64_t i = 0; i < count; ++i) {
    const float distance = (largest - logits[i]) * scale;
    const bool stays = (distance <= farthest) & (logits[i] >= smallest);
    weights[i] = stays ? ExpOfMinus(distance) : 0.0f;
  }
}

void DrawBlockSums(const float* weights, int64_t count, double* sums) {
  for (int64_t begin = 0; begin < count; begin += kDrawSumBlock) {
    const int64_t end = std::min(begin + kDrawSumBlock, count);
    std::array<float, 8> lanes{};
    int64_t i = begin;
    for (; i + 8 <= end; i += 8) {
      for (size_t lane = 0; lane < 8; ++lane)
        lanes[lane] += weights[i + static_cast<int64_t>(lane)];
    }
    double sum = 0;
    for (const float lane : lanes) sum += static_cast<double>(lane);
    for (; i < end; ++i) sum += static_cast<double>(weights[i]);
    *sums++ = sum;
  }
}

}  // namespace reference

SLUICE_VECTOR_KERNEL(ArgMax);
SLUICE_VECTOR_KERNEL(Largest);
SLUICE_LANE_SUM_KERNEL(SumExp);
SLUICE_VECTOR_KERNEL(CountNan);
SLUICE_VECTOR_KERNEL(CountGreater);
SLUICE_VECTOR_KERNEL(DrawWeights);
SLUICE_VECTOR_KERNEL(DrawBlockSums);

int32_t ArgMax(std::span<const float> logits) {
  CHECK(!logits.empty(), "no logits");
  return static_cast<int32_t>(kArgMax(logits.data(), static_cast<int64_t>(logits.size())));
}

LogSumExp ComputeLogSumExp(std::span<const float> logits) {
  CHECK(!logits.empty(), "no logits");
  const auto count = static_cast<int64_t>(logits.size());
  const float largest = kLargest(logits.data(), count);
  return {largest, static_cast<float>(std::log(kSumExp(logits.data(), count, largest)))};
}

void TopK(std::span<const float> logits, int k, std::vector<std::pair<int32_t, float>>& out) {
  out.clear();
  const size_t wanted = std::min(logits.size(), static_cast<size_t>(std::max(k, 0)));
  if (wanted == 0) return;
  // NaN comes last, as in ArgMax. Equal values are in ascending order of the index.
  const auto before = [](const std::pair<int32_t, float>& a, const std::pair<int32_t, float>& b) {
    if (std::isnan(a.second) || std::isnan(b.second)) {
      if (std::isnan(a.second) != std::isnan(b.second)) return std::isnan(b.second);
      return a.first < b.first;
    }
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  };
  if (wanted * 8 > logits.size()) {
    out.reserve(logits.size());
    for (size_t i = 0; i < logits.size(); ++i) out.emplace_back(static_cast<int32_t>(i), logits[i]);
    std::partial_sort(out.begin(), out.begin() + static_cast<int64_t>(wanted), out.end(), before);
    out.resize(wanted);
    return;
  }
  // Collects candidates that exceed a rising lower bound. Whenever there are 2 * wanted candidates,
  // keeps the best `wanted` ones.
  out.reserve(2 * wanted + 1);
  bool full = false;
  float floor = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (full && !(logits[i] > floor)) continue;
    out.emplace_back(static_cast<int32_t>(i), logits[i]);
    if (out.size() < 2 * wanted) continue;
    std::nth_element(out.begin(), out.begin() + static_cast<int64_t>(wanted) - 1, out.end(),
                     before);
    out.resize(wanted);
    floor = out.back().second;
    full = !std::isnan(floor);
  }
  if (out.size() > wanted) {
    std::nth_element(out.begin(), out.begin() + static_cast<int64_t>(wanted) - 1, out.end(),
                     before);
    out.resize(wanted);
  }
  std::sort(out.begin(), out.end(), before);
}

void DrawWeights(std::span<const float> logits, const DrawCut& cut, std::span<float> weights) {
  CHECK_EQ(logits.size(), weights.size());
  kDrawWeights(logits.data(), std::ssize(logits), cut.largest, cut.scale, cut.farthest,
               cut.smallest, weights.data());
}

void DrawBlockSums(std::span<const float> weights, std::span<double> sums) {
  CHECK_EQ(std::ssize(sums), NumDrawBlocks(std::ssize(weights)));
  kDrawBlockSums(weights.data(), std::ssize(weights), sums.data());
}

bool HasNan(std::span<const float> values) {
  return kCountNan(values.data(), std::ssize(values)) > 0;
}

int32_t CountGreater(std::span<const float> logits, float value) {
  return static_cast<int32_t>(
      kCountGreater(logits.data(), static_cast<int64_t>(logits.size()), value));
}

}  // namespace sluice::kernels
