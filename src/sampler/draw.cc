#include "sampler/draw.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/draw_weights.h"
#include "kernels/sampling.h"

namespace sluice {
namespace {

using kernels::DrawBucket;
using kernels::ExpOfMinus;
using kernels::kDrawSumBlock;

float KthLargest(std::span<const float> logits, int64_t k, DrawScratch& scratch) {
  constexpr int64_t kFewEnoughToCollect = 1024;
  if (k <= kFewEnoughToCollect) {
    kernels::TopK(logits, static_cast<int>(k), scratch.sorted);
    return scratch.sorted.back().second;
  }
  std::copy(logits.begin(), logits.end(), scratch.weights.begin());
  const auto nth = scratch.weights.begin() + k - 1;
  std::nth_element(scratch.weights.begin(), nth, scratch.weights.end(), std::greater<>());
  return *nth;
}

// Sets to zero the weights that top_p cuts off.
void CutTail(std::span<const float> logits, float largest, float scale, double top_p,
             DrawScratch& scratch) {
  std::vector<float>& weights = scratch.weights;
  const int64_t count = static_cast<int64_t>(logits.size());
  scratch.bucket_weight.fill(0);
  for (int64_t i = 0; i < count; ++i) {
    const float weight = weights[static_cast<size_t>(i)];
    if (weight == 0) continue;
    const int32_t bucket = DrawBucket((largest - logits[static_cast<size_t>(i)]) * scale);
    scratch.bucket_weight[static_cast<size_t>(bucket)] += kernels::BucketWeight(weight);
  }
  double total = 0;
  for (const double weight : scratch.bucket_weight) total += weight;
  const double target = top_p * total;
  double before = 0;
  int32_t edge = 0;
  while (edge < DrawScratch::kNumBuckets - 1 &&
         before + scratch.bucket_weight[static_cast<size_t>(edge)] < target) {
    before += scratch.bucket_weight[static_cast<size_t>(edge++)];
  }
  scratch.sorted.clear();
  for (int64_t i = 0; i < count; ++i) {
    const size_t index = static_cast<size_t>(i);
    if (weights[index] == 0) continue;
    const int32_t bucket = DrawBucket((largest - logits[index]) * scale);
    if (bucket == edge) scratch.sorted.emplace_back(static_cast<int32_t>(i), logits[index]);
    if (bucket > edge) weights[index] = 0;
  }
  std::sort(scratch.sorted.begin(), scratch.sorted.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  double inside = 0;  // exact, as every sum of a bucket
  for (const auto& entry : scratch.sorted) {
    float& weight = weights[static_cast<size_t>(entry.first)];
    const double own = kernels::BucketWeight(weight);
    if (before + inside >= target) weight = 0;
    inside += own;
  }
}

double SumBlock(const float* weights, int64_t count) {
  std::array<float, 8> sums{};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (size_t lane = 0; lane < 8; ++lane) sums[lane] += weights[i + static_cast<int64_t>(lane)];
  }
  double sum = 0;
  for (const float lane : sums) sum += static_cast<double>(lane);
  for (; i < count; ++i) sum += static_cast<double>(weights[i]);
  return sum;
}

int32_t Select(std::span<const float> weights, double uniform) {
  const int64_t count = static_cast<int64_t>(weights.size());
  const auto block = [&](int64_t begin) {
    return SumBlock(weights.data() + begin, std::min(kDrawSumBlock, count - begin));
  };
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += kDrawSumBlock) total += block(begin);
  const double target = uniform * total;
  double before = 0;
  int64_t last = 0;  // rounding may leave the target just beyond the last weight
  for (int64_t begin = 0; begin < count; begin += kDrawSumBlock) {
    const double sum = block(begin);
    if (sum == 0) continue;
    const bool here = before + sum > target;
    double reached = before;
    for (int64_t i = begin; i < std::min(begin + kDrawSumBlock, count); ++i) {
      if (weights[static_cast<size_t>(i)] == 0) continue;
      last = i;
      if (!here) continue;
      reached += static_cast<double>(weights[static_cast<size_t>(i)]);
      if (reached > target) return static_cast<int32_t>(i);
    }
    if (here) return static_cast<int32_t>(last);
    before += sum;
  }
  return static_cast<int32_t>(last);
}

}  // namespace

DrawScratch::DrawScratch(int64_t vocab_size) : weights(static_cast<size_t>(vocab_size)) {
  sorted.reserve(static_cast<size_t>(vocab_size));
}

float ScaleOf(const SamplingParams& params) {
  if (params.temperature == 0) return 0;
  return static_cast<float>(1 / std::max(params.temperature, kSmallestTemperature));
}

kernels::DrawSettings DrawSettingsOf(const SamplingParams& params, double uniform) {
  kernels::DrawSettings settings = {};
  settings.scale = ScaleOf(params);
  settings.farthest = params.min_p > 0 ? static_cast<float>(-std::log(params.min_p))
                                       : std::numeric_limits<float>::infinity();
  settings.top_k =
      static_cast<int32_t>(std::min<int64_t>(params.top_k, std::numeric_limits<int32_t>::max()));
  settings.top_p = params.top_p;
  settings.uniform = uniform;
  return settings;
}

int32_t DrawToken(std::span<const float> logits, float largest, const SamplingParams& params,
                  double uniform, DrawScratch& scratch) {
  const int64_t count = static_cast<int64_t>(logits.size());
  const auto [scale, farthest, top_k, top_p, number] = DrawSettingsOf(params, uniform);
  const float smallest = top_k > 0 && top_k < count ? KthLargest(logits, top_k, scratch)
                                                    : -std::numeric_limits<float>::infinity();
  float* weights = scratch.weights.data();
  for (int64_t i = 0; i < count; ++i) {
    const float distance = (largest - logits[static_cast<size_t>(i)]) * scale;
    const float weight = ExpOfMinus(distance);
    const bool stays = (distance <= farthest) & (logits[static_cast<size_t>(i)] >= smallest);
    weights[i] = stays ? weight : 0.0f;
  }
  if (top_p < 1) CutTail(logits, largest, scale, top_p, scratch);
  return Select(scratch.weights, number);
}

}  // namespace sluice
