#include "models/layers/linear.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/grouped_linear.h"
#include "kernels/linear.h"
#include "kernels/quantize_rows.h"

namespace sluice {
namespace {

// Rows [begin, begin + count) of `x`.
kernels::Activations RowsOf(const kernels::Activations& x, int64_t begin, int64_t count) {
  kernels::Activations rows = x;
  rows.data = static_cast<const std::byte*>(x.data) + begin * x.stride * BitsPerElement(x.type) / 8;
  rows.rows = count;
  return rows;
}

kernels::Activations RoundToInt8(const Step& step, const kernels::Activations& x) {
  auto* integers = static_cast<int8_t*>(step.workspace.rounded());
  float* scales = step.workspace.rounded_scales();
  kernels::QuantizeInt8Rows(step.pool, x, integers, scales);
  return {.data = integers,
          .type = ElementType::kI8,
          .rows = x.rows,
          .cols = x.cols,
          .stride = x.cols,
          .scales = scales};
}

kernels::Activations RoundToF32(const Step& step, const LinearInputs& inputs,
                                const kernels::Activations& x) {
  auto* rounded = static_cast<float*>(step.workspace.rounded());
  kernels::RoundRows(step.pool, inputs.format, inputs.scale, x, rounded);
  return DenseRows(rounded, ElementType::kF32, x.rows, x.cols);
}

// Each expert's rows are rounded with the scale of its own inputs.
kernels::Activations RoundOfExperts(const Step& step, const ExpertWeights& weights,
                                    std::span<const int32_t> row_begin,
                                    const kernels::Activations& x) {
  auto* rounded = static_cast<float*>(step.workspace.rounded());
  size_t expert = 0;
  while (expert < weights.inputs.size()) {
    const LinearInputs& inputs = weights.inputs[expert];
    const int64_t begin = row_begin[expert];
    do ++expert;
    while (expert < weights.inputs.size() && weights.inputs[expert] == inputs);
    const int64_t count = row_begin[expert] - begin;
    if (count == 0) continue;
    kernels::RoundRows(step.pool, inputs.format, inputs.scale, RowsOf(x, begin, count),
                       rounded + begin * x.cols);
  }
  return DenseRows(rounded, ElementType::kF32, x.rows, x.cols);
}

}  // namespace

void RunLinear(const Step& step, const LinearWeights& weights, const kernels::Activations& x,
               float* y, int64_t y_stride) {
  const float* bias = BiasOrNull(weights.bias);
  const InputRounding rounding = RoundingOf(weights.inputs.format, step.options);
  if (rounding == InputRounding::kNone)
    return kernels::Linear(step.pool, weights.matrix, x, y, y_stride, bias);
  const int64_t most = step.workspace.rounded_rows();
  for (int64_t begin = 0; begin < x.rows; begin += most) {
    const kernels::Activations rows = RowsOf(x, begin, std::min(most, x.rows - begin));
    kernels::Linear(step.pool, weights.matrix,
                    rounding == InputRounding::kInt8 ? RoundToInt8(step, rows)
                                                     : RoundToF32(step, weights.inputs, rows),
                    y + begin * y_stride, y_stride, bias);
  }
}

void RunExperts(const Step& step, const ExpertWeights& weights, std::span<const int32_t> row_begin,
                const kernels::Activations& x, float* y) {
  CHECK_LE(x.rows, step.workspace.moe_pairs());
  kernels::Activations inputs = x;
  switch (RoundingOf(weights.inputs.front().format, step.options)) {
    case InputRounding::kNone: break;
    case InputRounding::kInt8: inputs = RoundToInt8(step, x); break;
    case InputRounding::kF32: inputs = RoundOfExperts(step, weights, row_begin, x); break;
  }
  kernels::GroupedLinear(step.pool, weights.matrices, row_begin, inputs, y,
                         weights.matrices.front().rows);
}

}  // namespace sluice
