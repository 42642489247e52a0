#include "sampler/draw.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/block_maxima.h"
#include "kernels/draw_weights.h"
#include "kernels/sampling.h"

namespace sluice {
namespace {

using kernels::DrawBucket;
using kernels::kDrawSumBlock;
using kernels::kMaximaBlock;

// A row of logits to draw from. Blocks of logits that min_p or top_k removes entirely can be
// skipped.
struct DrawRow {
  std::span<const float> logits;
  std::span<const float> maxima;  // maximum of each block of logits; empty: unknown
  kernels::DrawCut cut;

  // Calls body(begin, count, maximum) for each block. If the block's maximum is unknown, passes
  // that of the row.
  template <typename Body>
  void ForEachBlock(const Body& body) const {
    for (size_t begin = 0, block = 0; begin < logits.size(); begin += kMaximaBlock, ++block) {
      body(begin, std::min<size_t>(kMaximaBlock, logits.size() - begin),
           maxima.empty() ? cut.largest : maxima[block]);
    }
  }
  float Distance(float logit) const { return (cut.largest - logit) * cut.scale; }
  // Whether the cuts (min_p and top_k) remove all logits of a block with this maximum. Smaller
  // logits have larger distances, even after rounding, so the maximum decides.
  bool IsCut(float maximum) const {
    return maximum < cut.smallest || Distance(maximum) > cut.farthest;
  }
  // Whether the cuts remove all blocks in [begin, begin + count); false if maxima are unknown.
  bool IsCut(size_t begin, size_t count) const {
    if (maxima.empty()) return false;
    const size_t first = begin / kMaximaBlock;
    const std::span<const float> own =
        maxima.subspan(first, std::min(count / kMaximaBlock, maxima.size() - first));
    return std::ranges::all_of(own, [&](float maximum) { return IsCut(maximum); });
  }
};

float KthLargest(const DrawRow& row, int64_t k, DrawScratch& scratch) {
  constexpr int64_t kFewEnoughToCollect = 1024;
  std::vector<float>& numbers = scratch.weights;
  if (k <= std::ssize(row.maxima)) {
    // At least k logits are not less than the k-th largest block maximum.
    const auto kth = numbers.begin() + k - 1;
    std::nth_element(numbers.begin(), kth, std::ranges::copy(row.maxima, numbers.begin()).out,
                     std::greater<>());
    const float floor = *kth;
    auto end = numbers.begin();
    row.ForEachBlock([&](size_t begin, size_t count, float maximum) {
      if (maximum < floor) return;
      for (const float logit : row.logits.subspan(begin, count)) {
        if (logit >= floor) *end++ = logit;
      }
    });
    std::nth_element(numbers.begin(), kth, end, std::greater<>());
    return *kth;
  }
  if (k <= kFewEnoughToCollect) {
    kernels::TopK(row.logits, static_cast<int>(k), scratch.sorted);
    return scratch.sorted.back().second;
  }
  std::ranges::copy(row.logits, numbers.begin());
  const auto kth = numbers.begin() + k - 1;
  std::nth_element(numbers.begin(), kth, numbers.end(), std::greater<>());
  return *kth;
}

void Weigh(const DrawRow& row, std::span<float> weights) {
  if (row.maxima.empty()) return kernels::DrawWeights(row.logits, row.cut, weights);
  // Skips blocks that are cut. Computes the weights of the blocks between two of them in one call.
  size_t first = 0;
  row.ForEachBlock([&](size_t begin, size_t count, float maximum) {
    if (!row.IsCut(maximum)) return;
    kernels::DrawWeights(row.logits.subspan(first, begin - first), row.cut,
                         weights.subspan(first, begin - first));
    std::ranges::fill(weights.subspan(begin, count), 0.0f);
    first = begin + count;
  });
  kernels::DrawWeights(row.logits.subspan(first), row.cut, weights.subspan(first));
}

// Sums the weights of each bucket. The sums are exact, so their order does not matter. Two arrays
// are used alternately, so additions of consecutive tokens to the same bucket do not depend on each
// other.
void SumBuckets(const DrawRow& row, DrawScratch& scratch) {
  for (auto& sums : scratch.bucket_weight) sums.fill(0);
  row.ForEachBlock([&](size_t begin, size_t count, float maximum) {
    if (row.IsCut(maximum)) return;
    std::array<int32_t, kMaximaBlock> buckets;
    for (size_t i = 0; i < count; ++i) buckets[i] = DrawBucket(row.Distance(row.logits[begin + i]));
    for (size_t i = 0; i < count; ++i) {
      scratch.bucket_weight[i % 2][static_cast<size_t>(buckets[i])] +=
          kernels::BucketWeight(scratch.weights[begin + i]);
    }
  });
  for (size_t i = 0; i < DrawScratch::kNumBuckets; ++i)
    scratch.bucket_weight[0][i] += scratch.bucket_weight[1][i];
}

// Sets the weights that top_p removes to 0.
void CutTail(const DrawRow& row, double top_p, DrawScratch& scratch) {
  std::vector<float>& weights = scratch.weights;
  SumBuckets(row, scratch);
  const auto& bucket_weight = scratch.bucket_weight[0];
  double total = 0;
  for (const double weight : bucket_weight) total += weight;
  const double target = top_p * total;
  double before = 0;
  int32_t edge = 0;
  while (edge < DrawScratch::kNumBuckets - 1 &&
         before + bucket_weight[static_cast<size_t>(edge)] < target) {
    before += bucket_weight[static_cast<size_t>(edge++)];
  }
  scratch.sorted.clear();
  row.ForEachBlock([&](size_t begin, size_t count, float maximum) {
    if (DrawBucket(row.Distance(maximum)) > edge) {
      std::fill_n(weights.begin() + static_cast<ptrdiff_t>(begin), count, 0.0f);
      return;
    }
    for (size_t i = begin; i < begin + count; ++i) {
      if (weights[i] == 0) continue;
      const int32_t bucket = DrawBucket(row.Distance(row.logits[i]));
      if (bucket == edge) scratch.sorted.emplace_back(static_cast<int32_t>(i), row.logits[i]);
      if (bucket > edge) weights[i] = 0;
    }
  });
  std::sort(scratch.sorted.begin(), scratch.sorted.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  double inside = 0;  // exact, like every bucket's sum
  for (const auto& entry : scratch.sorted) {
    float& weight = weights[static_cast<size_t>(entry.first)];
    const double own = kernels::BucketWeight(weight);
    if (before + inside >= target) weight = 0;
    inside += own;
  }
}

// Returns the token that `uniform` selects, given the sums of blocks of weights.
// `weights_of(block)` returns a block's weights.
template <typename WeightsOf>
int32_t Select(double uniform, std::span<const double> sums, const WeightsOf& weights_of) {
  double total = 0;
  for (const double sum : sums) total += sum;
  const double target = uniform * total;
  // Returns the token in a block at which the cumulative sum exceeds the target, or the block's
  // last token.
  const auto select = [&](size_t block, double reached) {
    const std::span<const float> weights = weights_of(block);
    size_t last = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (weights[i] == 0) continue;
      last = i;
      reached += static_cast<double>(weights[i]);
      if (reached > target) break;
    }
    return static_cast<int32_t>(block * kDrawSumBlock + last);
  };
  double before = 0;
  size_t last_block = 0;
  for (size_t block = 0; block < sums.size(); ++block) {
    const double sum = sums[block];
    if (sum == 0) continue;
    if (before + sum > target) return select(block, before);
    before += sum;
    last_block = block;
  }
  // Because of rounding, the target may slightly exceed the total.
  return select(last_block, -std::numeric_limits<double>::infinity());
}

int32_t SelectByWeights(double uniform, DrawScratch& scratch) {
  const std::span<const float> weights = scratch.weights;
  kernels::DrawBlockSums(weights, scratch.block_sums);
  return Select(uniform, scratch.block_sums, [&](size_t block) {
    const size_t begin = block * kDrawSumBlock;
    return weights.subspan(begin, std::min<size_t>(kDrawSumBlock, weights.size() - begin));
  });
}

// Like SelectByWeights, but does not store all weights, which would not fit into the CPU's cache.
// Computes the weights of the selected block again.
int32_t SelectByLogits(const DrawRow& row, double uniform, DrawScratch& scratch) {
  constexpr size_t kAtOnce = 4 * kDrawSumBlock;
  const std::span<float> weights =
      std::span(scratch.weights).first(std::min<size_t>(kAtOnce, row.logits.size()));
  const auto weigh = [&](size_t begin, size_t most) {
    const size_t count = std::min(most, row.logits.size() - begin);
    kernels::DrawWeights(row.logits.subspan(begin, count), row.cut, weights.first(count));
    return weights.first(count);
  };
  const std::span<double> sums = scratch.block_sums;
  for (size_t begin = 0; begin < row.logits.size(); begin += kAtOnce) {
    const auto blocks = static_cast<size_t>(
        kernels::NumDrawBlocks(static_cast<int64_t>(std::min(kAtOnce, row.logits.size() - begin))));
    const std::span<double> own = sums.subspan(begin / kDrawSumBlock, blocks);
    if (row.IsCut(begin, kAtOnce))
      std::ranges::fill(own, 0.0);
    else
      kernels::DrawBlockSums(weigh(begin, kAtOnce), own);
  }
  return Select(uniform, sums,
                [&](size_t block) { return weigh(block * kDrawSumBlock, kDrawSumBlock); });
}

}  // namespace

DrawScratch::DrawScratch(int64_t vocab_size)
    : weights(static_cast<size_t>(vocab_size)),
      block_sums(static_cast<size_t>(kernels::NumDrawBlocks(vocab_size))) {
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

bool NeedsWeights(const SamplingParams& params) {
  return params.logprobs && !IsRaw(params.logprobs_mode);
}

int32_t DrawToken(std::span<const float> logits, float largest, const SamplingParams& params,
                  double uniform, DrawScratch& scratch, std::span<const float> maxima) {
  const auto [scale, farthest, top_k, top_p, number] = DrawSettingsOf(params, uniform);
  DrawRow row{logits,
              maxima,
              {.largest = largest,
               .scale = scale,
               .farthest = farthest,
               .smallest = -std::numeric_limits<float>::infinity()}};
  if (top_k > 0 && top_k < std::ssize(logits)) row.cut.smallest = KthLargest(row, top_k, scratch);
  if (top_p == 1 && !NeedsWeights(params)) return SelectByLogits(row, number, scratch);
  Weigh(row, scratch.weights);
  if (top_p < 1) CutTail(row, top_p, scratch);
  return SelectByWeights(number, scratch);
}

}  // namespace sluice
