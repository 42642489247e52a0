#include "models/layers/mlp.h"

#include <algorithm>

#include "kernels/gelu_mul.h"
#include "kernels/silu_mul.h"
#include "models/layers/linear.h"

namespace sluice {

void ApplyGate(const Step& step, Activation activation, const float* x, int64_t rows, int64_t width,
               void* y, ElementType y_type) {
  switch (activation) {
    case Activation::kSilu: return kernels::SiluMul(step.pool, x, rows, width, y, y_type);
    case Activation::kGeluTanh: return kernels::GeluMul(step.pool, x, rows, width, y, y_type);
  }
}

void Mlp(const Step& step, const MlpSpec& spec, const MlpWeights& weights, int64_t rows) {
  const ElementType type = step.InputType(weights.gate_up.inputs.format);
  const ElementType activated_type = step.InputType(weights.down.inputs.format);
  const int64_t hidden_size = weights.down.matrix.rows;
  const int64_t row_bytes = hidden_size * BitsPerElement(type) / 8;
  const auto* normed = static_cast<const std::byte*>(step.workspace.normed());
  float* gate_up = step.workspace.gate_up();
  void* activated = step.workspace.activated();
  for (int64_t first = 0; first < rows; first += step.workspace.mlp_rows()) {
    const int64_t count = std::min(step.workspace.mlp_rows(), rows - first);
    RunLinear(step, weights.gate_up,
              DenseRows(normed + first * row_bytes, type, count, hidden_size), gate_up,
              weights.gate_up.matrix.rows);
    ApplyGate(step, spec.activation, gate_up, count, spec.intermediate_size, activated,
              activated_type);
    RunLinear(step, weights.down,
              DenseRows(activated, activated_type, count, spec.intermediate_size),
              step.workspace.delta() + first * hidden_size, hidden_size);
  }
}

}  // namespace sluice
