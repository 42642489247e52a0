#include "models/layers/mlp.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/gelu_mul.h"
#include "kernels/silu_mul.h"
#include "models/layers/linear.h"
#include "models/layers/tensor_ranks.h"

namespace sluice {

void ApplyGate(const Step& step, Activation activation, const float* x, int64_t rows, int64_t width,
               void* y, ElementType y_type) {
  switch (activation) {
    case Activation::kSilu: return kernels::SiluMul(step.pool, x, rows, width, y, y_type);
    case Activation::kGeluTanh: return kernels::GeluMul(step.pool, x, rows, width, y, y_type);
    case Activation::kClampedSwiglu: break;
  }
  CHECK(false, "an MLP without experts has no clamped SwiGLU");
}

void GatherActivated(const Step& step, int64_t width, int64_t rows, ElementType type) {
  if (step.ranks == nullptr) return;
  step.ranks->GatherRowsOf(step.pool, width, type, rows, step.workspace.own_activated(),
                           step.workspace.activated());
}

void Mlp(const Step& step, const MlpSpec& spec, const MlpWeights& weights, int64_t rows) {
  const ElementType type = step.InputType(weights.gate_up.inputs.format);
  const ElementType activated_type = step.InputType(weights.down.inputs.format);
  const int64_t hidden_size = step.hidden_size;
  const int64_t own_hidden = weights.down.matrix.rows;
  const int64_t row_bytes = hidden_size * BitsPerElement(type) / 8;
  const auto* normed = static_cast<const std::byte*>(step.workspace.normed());
  float* gate_up = step.workspace.gate_up();
  for (int64_t first = 0; first < rows; first += step.workspace.mlp_rows()) {
    const int64_t count = std::min(step.workspace.mlp_rows(), rows - first);
    RunLinear(step, weights.gate_up,
              DenseRows(normed + first * row_bytes, type, count, hidden_size), gate_up,
              weights.gate_up.matrix.rows, first);
    ApplyGate(step, spec.activation, gate_up, count, spec.intermediate_size,
              step.workspace.own_activated(), activated_type);
    GatherActivated(step, weights.down.matrix.cols, count, activated_type);
    RunLinear(
        step, weights.down,
        DenseRows(step.workspace.activated(), activated_type, count, weights.down.matrix.cols),
        step.workspace.own_delta() + first * own_hidden, own_hidden, first);
  }
}

}  // namespace sluice
