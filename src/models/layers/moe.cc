#include "models/layers/moe.h"

#include <algorithm>

#include "kernels/clamped_swiglu.h"
#include "kernels/experts.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"
#include "models/layers/linear.h"
#include "models/layers/mlp.h"
#include "models/layers/residual.h"
#include "models/layers/tensor_ranks.h"

namespace sluice {
namespace {

// y = normed * weights, of rows in F32 that nothing rounds.
void RunPlain(const Step& step, const LinearWeights& weights, int64_t rows, float* y) {
  const kernels::PackedMatrix& matrix = weights.matrix;
  const kernels::Activations x =
      DenseRows(step.workspace.normed(), ElementType::kF32, rows, matrix.cols);
  kernels::Linear(step.pool, matrix, x, y, matrix.rows, BiasOrNull(weights.bias));
  if (step.lora != nullptr)
    step.lora->Add(step.pool, weights.lora_layer, x, /*first_row=*/0, y, matrix.rows);
}

// Chooses the experts of every row, from inputs in F32: a choice between two experts that are
// nearly as good should not hang on their rounding.
void Route(const Step& step, const MoeSpec& spec, const MoeWeights& weights, int64_t rows) {
  const Workspace& workspace = step.workspace;
  RunPlain(step, weights.router, rows, workspace.router_logits());
  const kernels::RouterRule rule{.score = spec.score,
                                 .choice_bias = BiasOrNull(weights.choice_bias),
                                 .normalize = spec.normalize,
                                 .scale = spec.weight_scale};
  kernels::SelectExperts(step.pool, workspace.router_logits(), rows, spec.num_experts, spec.top_k,
                         rule, workspace.chosen(), workspace.expert_weights());
}

// The MLP that every token passes through, where it has a gate behind it. The gate's inputs are in
// F32, as the router's are.
void RunShared(const Step& step, const MlpSpec& spec, const MlpWeights& weights, int64_t rows) {
  Mlp(step, spec, weights, rows);
  if (spec.output_gate.empty()) return;
  const Workspace& workspace = step.workspace;
  RunPlain(step, weights.output_gate, rows, workspace.shared_gates());
  kernels::GateRows(step.pool, workspace.shared_gates(), rows, weights.down.matrix.rows,
                    workspace.own_delta());
}

void ApplyExpertGate(const Step& step, const MoeSpec& spec, int64_t pairs) {
  const Workspace& workspace = step.workspace;
  if (spec.activation != Activation::kClampedSwiglu) {
    return ApplyGate(step, spec.activation, workspace.gate_up(), pairs, spec.intermediate_size,
                     workspace.own_activated(), ElementType::kF32);
  }
  kernels::ClampedSwiglu(step.pool, workspace.gate_up(), pairs, spec.intermediate_size, spec.clamp,
                         workspace.own_activated(), ElementType::kF32);
}

// The experts of rows [first, first + count), into those rows of `delta`.
void RunChosen(const Step& step, const MoeSpec& spec, const MoeWeights& weights, int64_t first,
               int64_t count, bool add, float* delta) {
  const Workspace& workspace = step.workspace;
  const ElementType type = ElementType::kF32;
  const int64_t hidden_size = weights.router.matrix.cols;
  const int64_t pairs = count * spec.top_k;
  const float* expert_weights = workspace.expert_weights() + first * spec.top_k;
  kernels::GroupByExpert(workspace.chosen() + first * spec.top_k, count, spec.top_k,
                         spec.num_experts, workspace.order(), workspace.place(),
                         workspace.row_begin());
  const std::span<int32_t> row_begin(workspace.row_begin(),
                                     static_cast<size_t>(spec.num_experts + 1));
  const float* normed = static_cast<const float*>(workspace.normed()) + first * hidden_size;
  kernels::GatherRows(step.pool, DenseRows(normed, type, count, hidden_size),
                      {workspace.order(), static_cast<size_t>(pairs)}, spec.top_k,
                      spec.scale_inputs ? expert_weights : nullptr, workspace.gathered());
  const ExpertRows rows{.order = workspace.order(), .top_k = spec.top_k, .first = first};
  RunExperts(step, weights.gate_up, row_begin, rows,
             DenseRows(workspace.gathered(), type, pairs, hidden_size), workspace.gate_up());
  ApplyExpertGate(step, spec, pairs);
  const kernels::PackedMatrix& down = weights.down.matrices.front();
  GatherActivated(step, down.cols, pairs, type);
  RunExperts(step, weights.down, row_begin, rows,
             DenseRows(workspace.activated(), type, pairs, down.cols), workspace.expert_results());
  kernels::CombineExperts(step.pool, workspace.expert_results(), workspace.place(),
                          spec.scale_inputs ? nullptr : expert_weights, count, spec.top_k,
                          down.rows, add, delta + first * down.rows);
}

// The experts of all rows.
void RunAllChosen(const Step& step, const MoeSpec& spec, const MoeWeights& weights, int64_t rows,
                  bool add, float* delta) {
  const int64_t most = step.workspace.moe_pairs() / spec.top_k;
  for (int64_t first = 0; first < rows; first += most)
    RunChosen(step, spec, weights, first, std::min(most, rows - first), add, delta);
}

// Of whole rows, which the ranks put together in `result` from their `own_delta`.
void NormResult(const Step& step, const std::vector<float>& norm, int64_t rows, float* result) {
  if (step.ranks != nullptr) step.ranks->GatherHidden(step, rows, result);
  kernels::HeadRmsNorm(step.pool, result, step.hidden_size, norm.data(), step.norm_eps, rows, 1,
                       static_cast<int>(step.hidden_size));
}

void ScaleByExpert(const Step& step, const MoeSpec& spec, const MoeWeights& weights, int64_t rows) {
  const int32_t* chosen = step.workspace.chosen();
  float* factors = step.workspace.expert_weights();
  for (int64_t i = 0; i < rows * spec.top_k; ++i)
    factors[i] *= weights.expert_factors[static_cast<size_t>(chosen[i])];
}

// MoeSpec::own_norms. The MLP reads `normed`, as EnterSublayer left it.
void RunWithOwnNorms(const Step& step, const LayerSpec& spec, const LayerWeights& weights,
                     int64_t rows) {
  const Workspace& workspace = step.workspace;
  Mlp(step, spec.mlp, weights.mlp, rows);
  NormResult(step, weights.moe.mlp_after, rows, workspace.delta());
  EnterSublayer(step, weights.moe.router_norm, /*add=*/false, rows, ElementType::kF32);
  Route(step, *spec.moe, weights.moe, rows);
  ScaleByExpert(step, *spec.moe, weights.moe, rows);
  EnterSublayer(step, weights.moe.experts_before, /*add=*/false, rows, ElementType::kF32);
  // `delta` is taken.
  float* const result = step.ranks == nullptr ? workspace.expert_delta() : workspace.own_delta();
  RunAllChosen(step, *spec.moe, weights.moe, rows, /*add=*/false, result);
  NormResult(step, weights.moe.experts_after, rows, workspace.expert_delta());
  kernels::ResidualAdd(step.pool, workspace.delta(), workspace.expert_delta(),
                       rows * step.hidden_size);
}

}  // namespace

void Moe(const Step& step, const LayerSpec& spec, const LayerWeights& weights, int64_t rows) {
  if (spec.moe->own_norms) return RunWithOwnNorms(step, spec, weights, rows);
  Route(step, *spec.moe, weights.moe, rows);
  const bool has_shared = spec.mlp.intermediate_size > 0;
  if (has_shared) RunShared(step, spec.mlp, weights.mlp, rows);
  RunAllChosen(step, *spec.moe, weights.moe, rows, has_shared, step.workspace.own_delta());
}

}  // namespace sluice
