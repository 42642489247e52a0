// Chooses experts, groups rows by expert and combines the experts' outputs.
#include "kernels/experts.h"

#include <algorithm>

#include "models/cpu/walk.h"

namespace sluice {

void CpuWalk::operator()(const program::Route& op) {
  const MoeSpec& spec = Moe(op.moe);
  const int64_t rows = CountOf(op.x);
  float* const logits = F32At(op.logits, spec.num_experts);
  int32_t* const chosen = I32At(op.chosen, spec.top_k);
  float* const weights = F32At(op.weights, spec.top_k);
  MultiplyPlain(op.router, op.lora, Rows(op.x, ElementType::kF32, op.width), logits);
  const kernels::RouterRule rule{.score = spec.score,
                                 .choice_bias = Vector(op.choice_bias),
                                 .num_groups = spec.num_groups,
                                 .kept_groups = spec.kept_groups,
                                 .group_best = spec.group_best,
                                 .normalize = spec.normalize,
                                 .scale = spec.weight_scale,
                                 .jitter = spec.jitter,
                                 .soft_cap = spec.soft_cap,
                                 .chooses_by_logits = spec.chooses_by_logits};
  if (op.token_experts != program::kNone) {
    const float* const table = Vector(op.token_experts);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t token = step_.input.tokens[static_cast<size_t>(row)];
      std::transform(table + token * spec.top_k, table + (token + 1) * spec.top_k,
                     chosen + row * spec.top_k,
                     [](float expert) { return static_cast<int32_t>(expert); });
    }
    return kernels::WeighExperts(pool_, logits, rows, spec.num_experts, spec.top_k, rule, chosen,
                                 weights);
  }
  kernels::SelectExperts(pool_, logits, rows, spec.num_experts, spec.top_k, rule, chosen, weights);
  if (op.factors == program::kNone) return;
  const std::vector<float>& factors = VectorOf(op.factors);
  for (int64_t i = 0; i < rows * spec.top_k; ++i)
    weights[i] *= factors[static_cast<size_t>(chosen[i])];
}

void CpuWalk::operator()(const program::GateShared& op) {
  float* const gates = F32At(op.gates, 1);
  MultiplyPlain(op.gate, op.lora, Rows(op.x, ElementType::kF32, op.width), gates);
  kernels::GateRows(pool_, gates, CountOf(op.x), op.y_width, F32At(op.y, op.y_width));
}

void CpuWalk::operator()(const program::GroupExperts& op) {
  const MoeSpec& spec = Moe(op.moe);
  const int64_t count = CountOf(op.x);
  int32_t* const order = I32At(op.order, 0);
  kernels::GroupByExpert(I32At(op.chosen, spec.top_k), count, spec.top_k, spec.num_experts, order,
                         I32At(op.place, 0), I32At(op.row_begin, 0));
  kernels::GatherRows(pool_, Rows(op.x, ElementType::kF32, op.width),
                      {order, static_cast<size_t>(count * spec.top_k)}, spec.top_k,
                      spec.scale_inputs ? F32At(op.weights, spec.top_k) : nullptr, At(op.out, 0));
}

void CpuWalk::operator()(const program::CombineExperts& op) {
  const MoeSpec& spec = Moe(op.moe);
  kernels::CombineExperts(pool_, F32At(op.x, 0), I32At(op.place, 0),
                          spec.scale_inputs ? nullptr : F32At(op.weights, spec.top_k),
                          CountOf(op.sum), spec.top_k, op.width, op.adds, F32At(op.sum, op.width));
}

}  // namespace sluice
