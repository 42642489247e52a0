#include "kernels/experts.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "kernels/row_parts.h"
#include "kernels/sigmoid.h"
#include "tensor/bfloat16.h"

namespace sluice::kernels {
namespace {

// Writes the indices of the `top_k` largest logits in descending order, the lower index first among
// equal ones. NaN is smaller than every number, so the result always has `top_k` distinct experts.
void TopK(const float* logits, int64_t num_experts, int64_t top_k, int32_t* chosen) {
  int64_t count = 0;
  for (int64_t expert = 0; expert < num_experts; ++expert) {
    int64_t at = count;
    while (at > 0 && (logits[expert] > logits[chosen[at - 1]] ||
                      (std::isnan(logits[chosen[at - 1]]) && !std::isnan(logits[expert])))) {
      --at;
    }
    if (at == top_k) continue;
    count = std::min(count + 1, top_k);
    for (int64_t i = count - 1; i > at; --i) chosen[i] = chosen[i - 1];
    chosen[at] = static_cast<int32_t>(expert);
  }
}

// Source: transformers' "sqrtsoftplus" of ACT2FN.
float SqrtSoftplus(float x) {
  return std::sqrt(x > 20 ? x : std::log1p(std::exp(x)));
}

// Returns the score of a logit, for kSigmoid and kSqrtSoftplus.
float OwnScore(RouterScore score, float logit) {
  return score == RouterScore::kSqrtSoftplus ? SqrtSoftplus(logit) : Sigmoid(logit);
}

// Computes the weights of chosen experts, for kSigmoid and kSqrtSoftplus.
void WeighRow(const float* logits, int64_t top_k, const RouterRule& rule, const int32_t* chosen,
              float* weights) {
  for (int64_t i = 0; i < top_k; ++i) weights[i] = OwnScore(rule.score, logits[chosen[i]]);
}

// Applies the rule's normalization and scale.
void FinishWeights(int64_t top_k, const RouterRule& rule, float* weights) {
  if (rule.normalize) {
    float sum = 0;
    for (int64_t i = 0; i < top_k; ++i) sum += weights[i];
    // The scores of given experts may all be 0.
    for (int64_t i = 0; i < top_k && sum != 0; ++i) weights[i] /= sum;
  }
  if (rule.scale == 1) return;
  for (int64_t i = 0; i < top_k; ++i) weights[i] *= rule.scale;
}

// Chooses the `top_k` best experts of the kept groups. Experts of other groups are never chosen,
// even if a score is NaN.
void ChooseInGroups(const float* scores, int64_t num_experts, int64_t top_k, const RouterRule& rule,
                    int32_t* chosen) {
  const int64_t size = num_experts / rule.num_groups;
  std::array<float, kMostBiasedExperts> sums, kept;
  for (int64_t group = 0; group < rule.num_groups; ++group) {
    const float* of_group = scores + group * size;
    int32_t best[2];
    TopK(of_group, size, rule.group_best, best);
    sums[static_cast<size_t>(group)] = of_group[best[0]];
    if (rule.group_best == 2) sums[static_cast<size_t>(group)] += of_group[best[1]];
  }
  std::array<int32_t, kMostBiasedExperts> groups;
  TopK(sums.data(), rule.num_groups, rule.kept_groups, groups.data());
  std::sort(groups.begin(), groups.begin() + rule.kept_groups);  // ties by ascending index
  for (int64_t i = 0; i < rule.kept_groups; ++i)
    std::copy_n(scores + groups[static_cast<size_t>(i)] * size, size, kept.data() + i * size);
  TopK(kept.data(), rule.kept_groups * size, top_k, chosen);
  for (int64_t i = 0; i < top_k; ++i) {
    const int64_t group = groups[static_cast<size_t>(chosen[i] / size)];
    chosen[i] = static_cast<int32_t>(group * size + chosen[i] % size);
  }
}

// Chooses the experts of a row by biased scores, by groups, or by both.
void ChooseExperts(const float* logits, int64_t num_experts, int64_t top_k, const RouterRule& rule,
                   float softmax_shift, float softmax_sum, int32_t* chosen) {
  std::array<float, kMostBiasedExperts> scores;
  for (int64_t e = 0; e < num_experts; ++e) {
    const float score = rule.chooses_by_logits ? logits[e]
                        : rule.score == RouterScore::kSoftmax
                            ? std::exp(logits[e] - softmax_shift) / softmax_sum
                            : OwnScore(rule.score, logits[e]);
    scores[static_cast<size_t>(e)] =
        rule.choice_bias == nullptr ? score : score + rule.choice_bias[e];
  }
  if (rule.kept_groups < rule.num_groups)
    return ChooseInGroups(scores.data(), num_experts, top_k, rule, chosen);
  TopK(scores.data(), num_experts, top_k, chosen);
}

// Returns the softmax weight of `best` among the logits that are near it. `skipped`: an expert that
// is excluded, or -1.
float SparseWeight(const float* logits, int64_t num_experts, int32_t best, int32_t skipped,
                   float jitter) {
  const float largest = logits[best];
  float sum = 0;
  for (int64_t e = 0; e < num_experts; ++e) {
    if (e == skipped) continue;
    const float size = std::max(std::abs(logits[e]), largest);
    const bool is_far = (largest - logits[e]) / size > 2 * jitter;  // false for 0 / 0
    if (!is_far) sum += std::exp(logits[e] - largest);
  }
  return 1 / sum;
}

void SelectRow(const float* logits, int64_t num_experts, int64_t top_k, const RouterRule& rule,
               int32_t* chosen, float* weights) {
  std::array<float, kMostBiasedExperts> capped;
  if (rule.soft_cap > 0) {
    for (int64_t e = 0; e < num_experts; ++e)
      capped[static_cast<size_t>(e)] = rule.soft_cap * std::tanh(logits[e] / rule.soft_cap);
    logits = capped.data();
  }
  TopK(logits, num_experts, top_k, chosen);
  if (rule.score == RouterScore::kSparseMixer) {
    weights[0] = SparseWeight(logits, num_experts, chosen[0], -1, rule.jitter);
    weights[1] = SparseWeight(logits, num_experts, chosen[1], chosen[0], rule.jitter);
    return;
  }
  const bool is_softmax = rule.score == RouterScore::kSoftmax;
  const float largest = logits[chosen[0]];
  float sum = 0;
  for (int64_t e = 0; is_softmax && e < num_experts; ++e) sum += std::exp(logits[e] - largest);
  if (rule.choice_bias != nullptr || rule.kept_groups < rule.num_groups)
    ChooseExperts(logits, num_experts, top_k, rule, largest, sum, chosen);
  if (is_softmax) {
    for (int64_t i = 0; i < top_k; ++i) weights[i] = std::exp(logits[chosen[i]] - largest) / sum;
  } else {
    WeighRow(logits, top_k, rule, chosen, weights);
  }
  FinishWeights(top_k, rule, weights);
}

void GatherRow(const BFloat16* x, int64_t cols, const float* weight, BFloat16* out) {
  if (weight == nullptr) {
    std::copy_n(x, cols, out);
    return;
  }
  for (int64_t k = 0; k < cols; ++k) out[k] = ToBFloat16(ToFloat(x[k]) * *weight);
}

void GatherRow(const float* x, int64_t cols, const float* weight, float* out) {
  if (weight == nullptr) {
    std::copy_n(x, cols, out);
    return;
  }
  for (int64_t k = 0; k < cols; ++k) out[k] = x[k] * *weight;
}

template <typename T>
void Gather(ThreadPool& pool, const Activations& x, std::span<const int32_t> order, int64_t top_k,
            const float* weights, T* out) {
  // For the few rows of a decoding step, waking another thread takes more time than it saves.
  const int64_t grain = std::max<int64_t>(1, 8192 / std::max<int64_t>(1, x.cols));
  pool.ParallelFor(static_cast<int64_t>(order.size()), grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t pair = order[static_cast<size_t>(i)];
      GatherRow(static_cast<const T*>(x.data) + pair / top_k * x.stride, x.cols,
                weights == nullptr ? nullptr : weights + pair, out + i * x.cols);
    }
  });
}

}  // namespace

void SelectExperts(ThreadPool& pool, const float* logits, int64_t rows, int64_t num_experts,
                   int64_t top_k, const RouterRule& rule, int32_t* chosen, float* weights) {
  CHECK((rule.choice_bias == nullptr && rule.num_groups == 1 && rule.soft_cap == 0) ||
            num_experts <= kMostBiasedExperts,
        "{} experts are too many for a biased choice, one in groups, or one of capped logits",
        num_experts);
  CHECK(rule.group_best == 1 || rule.group_best == 2);
  CHECK(rule.score != RouterScore::kSparseMixer || (top_k == 2 && rule.choice_bias == nullptr));
  CHECK(top_k >= 1 && top_k <= num_experts, "cannot choose {} of {} experts", top_k, num_experts);
  constexpr int64_t kGrain = 4;
  pool.ParallelFor(rows, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      SelectRow(logits + row * num_experts, num_experts, top_k, rule, chosen + row * top_k,
                weights + row * top_k);
    }
  });
}

void WeighExperts(ThreadPool& pool, const float* logits, int64_t rows, int64_t num_experts,
                  int64_t top_k, const RouterRule& rule, const int32_t* chosen, float* weights) {
  CHECK(rule.score == RouterScore::kSigmoid || rule.score == RouterScore::kSqrtSoftplus);
  CHECK(rule.soft_cap == 0 && rule.num_groups == 1);
  constexpr int64_t kGrain = 16;
  pool.ParallelFor(rows, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      WeighRow(logits + row * num_experts, top_k, rule, chosen + row * top_k,
               weights + row * top_k);
      FinishWeights(top_k, rule, weights + row * top_k);
    }
  });
}

void GateRows(ThreadPool& pool, const float* logits, int64_t rows, int64_t cols, float* x) {
  constexpr int64_t kGrain = 1024;
  ForEachRowPart(pool, rows, cols, kGrain, [&](int64_t row, int64_t begin, int64_t end) {
    const float gate = Sigmoid(logits[row]);
    for (int64_t i = begin; i < end; ++i) x[row * cols + i] *= gate;
  });
}

void GroupByExpert(const int32_t* chosen, int64_t rows, int64_t top_k, int64_t num_experts,
                   int32_t* order, int32_t* place, int32_t* row_begin) {
  const int64_t pairs = rows * top_k;
  std::fill_n(row_begin, num_experts + 1, 0);
  for (int64_t pair = 0; pair < pairs; ++pair) ++row_begin[chosen[pair] + 1];
  for (int64_t e = 0; e < num_experts; ++e) row_begin[e + 1] += row_begin[e];
  // Uses each expert's start as its cursor. Afterwards, the cursor equals the start of the next
  // expert.
  for (int64_t pair = 0; pair < pairs; ++pair) {
    const int32_t at = row_begin[chosen[pair]]++;
    order[at] = static_cast<int32_t>(pair);
    place[pair] = at;
  }
  for (int64_t e = num_experts; e > 0; --e) row_begin[e] = row_begin[e - 1];
  row_begin[0] = 0;
}

void GatherRows(ThreadPool& pool, const Activations& x, std::span<const int32_t> order,
                int64_t top_k, const float* weights, void* out) {
  if (x.type == ElementType::kBF16)
    Gather(pool, x, order, top_k, weights, static_cast<BFloat16*>(out));
  else if (x.type == ElementType::kF32)
    Gather(pool, x, order, top_k, weights, static_cast<float*>(out));
  else
    CHECK(false, "rows to gather are F32 or BF16, not {}", ElementTypeName(x.type));
}

void CombineExperts(ThreadPool& pool, const float* y, const int32_t* place, const float* weights,
                    int64_t rows, int64_t top_k, int64_t cols, bool add, float* sum) {
  constexpr int64_t kGrain = 1024;
  ForEachRowPart(pool, rows, cols, kGrain, [&](int64_t row, int64_t begin, int64_t end) {
    float* out = sum + row * cols;
    for (int64_t slot = 0; slot < top_k; ++slot) {
      const int64_t pair = row * top_k + slot;
      const float* from = y + place[pair] * cols;
      const float weight = weights == nullptr ? 1.0f : weights[pair];
      if (slot == 0 && !add) {
        for (int64_t i = begin; i < end; ++i) out[i] = weight * from[i];
      } else {
        for (int64_t i = begin; i < end; ++i) out[i] += weight * from[i];
      }
    }
  });
}

}  // namespace sluice::kernels
