#include "models/layers/mlp.h"

#include <algorithm>

#include "kernels/linear.h"
#include "kernels/silu_mul.h"

namespace sluice {

void Mlp(const Step& step, const MlpSpec& spec, const MlpWeights& weights, int64_t rows) {
  const int64_t hidden_size = weights.down.rows;
  const int64_t row_bytes = hidden_size * BitsPerElement(step.compute_type) / 8;
  const auto* normed = static_cast<const std::byte*>(step.workspace.normed());
  float* gate_up = step.workspace.gate_up();
  void* activated = step.workspace.activated();
  for (int64_t first = 0; first < rows; first += step.workspace.mlp_rows()) {
    const int64_t count = std::min(step.workspace.mlp_rows(), rows - first);
    kernels::Linear(step.pool, weights.gate_up,
                    DenseRows(normed + first * row_bytes, step.compute_type, count, hidden_size),
                    gate_up, weights.gate_up.rows, BiasOrNull(weights.gate_up_bias));
    kernels::SiluMul(step.pool, gate_up, count, spec.intermediate_size, activated,
                     step.compute_type);
    kernels::Linear(step.pool, weights.down,
                    DenseRows(activated, step.compute_type, count, spec.intermediate_size),
                    step.workspace.delta() + first * hidden_size, hidden_size,
                    BiasOrNull(weights.down_bias));
  }
}

}  // namespace sluice
