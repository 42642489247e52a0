// experts: routing of a mixture of experts, gathering of its inputs and combination of its outputs.
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "kernels/matrix.h"

namespace sluice::kernels {

enum class RouterScore {
  kSoftmax,  // softmax over all experts, then the top_k largest
  kSigmoid,  // the top_k largest logits, then the sigmoid of each
  // The two largest logits. The weight of each one is its softmax among the experts whose logits
  // are near its own logit; for the second expert, the first expert is excluded. This is
  // Phi-3.5-MoE's sparsemixer. No choice_bias; top_k is 2.
  kSparseMixer,
  kSqrtSoftplus,  // the top_k largest logits, then the square root of the softplus of each
};

// How experts are chosen and weighted.
struct RouterRule {
  RouterScore score = RouterScore::kSoftmax;
  // [num_experts], added to the scores only for the choice; null: the experts with the largest
  // logits are chosen.
  const float* choice_bias = nullptr;
  // Experts form `num_groups` groups of consecutive experts, and the choice is limited to
  // `kept_groups` groups: those with the largest sums of their `group_best` (1 or 2) best scores.
  int num_groups = 1;
  int kept_groups = 1;
  int group_best = 2;
  bool normalize = false;  // whether the weights of a row are divided by their sum
  float scale = 1;         // multiplies the weights after everything else
  // kSparseMixer: a logit l is near the largest logit m if m - l <= 2 * jitter * max(|l|, m).
  float jitter = 0;
  float soft_cap = 0;  // c: a logit x becomes c * tanh(x / c) before everything else; 0: no cap
  // Whether the choice bias is added to the logits, not to the scores. It does not change the
  // weights.
  bool chooses_by_logits = false;
};

constexpr int64_t kMostBiasedExperts = 4096;  // limit with a choice_bias, groups or a soft_cap

// Selects the experts of every row. logits: F32 [rows, num_experts]. chosen and weights: [rows,
// top_k], in descending order of the logit, or of the biased score if the choice uses one; ties in
// ascending order of the index. Source of the formulas: transformers' Qwen3MoeTopKRouter,
// Llama4Router, Glm4MoeTopkRouter and PhimoeTopKRouter. REQUIRES: num_groups divides num_experts
// into groups of at least group_best experts; the kept groups have at least top_k experts.
void SelectExperts(ThreadPool& pool, const float* logits, int64_t rows, int64_t num_experts,
                   int64_t top_k, const RouterRule& rule, int32_t* chosen, float* weights);

// Like SelectExperts, but only computes the weights of given experts: chosen [rows, top_k].
// REQUIRES: the score is kSigmoid or kSqrtSoftplus, and there are no soft_cap and no groups.
void WeighExperts(ThreadPool& pool, const float* logits, int64_t rows, int64_t num_experts,
                  int64_t top_k, const RouterRule& rule, const int32_t* chosen, float* weights);

// Computes x[row, :] *= sigmoid(logits[row]). x: F32 contiguous [rows, cols].
void GateRows(ThreadPool& pool, const float* logits, int64_t rows, int64_t cols, float* x);

// Sorts the pairs (row, slot) by expert, rows ascending within an expert. order: [rows * top_k],
// the pair at each sorted position, encoded as row * top_k + slot; place: [rows * top_k], the
// inverse permutation; row_begin: [num_experts + 1].
void GroupByExpert(const int32_t* chosen, int64_t rows, int64_t top_k, int64_t num_experts,
                   int32_t* order, int32_t* place, int32_t* row_begin);

// Copies out[i, :] = x[order[i] / top_k, :], times weights[order[i]] if `weights` is not null
// (input scaling). `out` has x's type, contiguous.
void GatherRows(ThreadPool& pool, const Activations& x, std::span<const int32_t> order,
                int64_t top_k, const float* weights, void* out);

// Adds up the outputs of each row's slots in slot order, each multiplied by its weight if `weights`
// is not null (output scaling), to sum[row, :]. y: F32 contiguous [rows * top_k, cols] in the order
// of GroupByExpert. `add`: true: adds to `sum`; false: overwrites it.
void CombineExperts(ThreadPool& pool, const float* y, const int32_t* place, const float* weights,
                    int64_t rows, int64_t top_k, int64_t cols, bool add, float* sum);

}  // namespace sluice::kernels
