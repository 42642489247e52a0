#include "models/layers/linear.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/grouped_linear.h"
#include "kernels/linear.h"
#include "kernels/quantize_rows.h"
#include "kernels/split_rows.h"

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

// F32 rows of a layer that computes in BF16 are split into two BF16 rows each.
bool IsSplit(const Step& step, const kernels::Activations& x) {
  return x.type == ElementType::kF32 && step.options.compute_type == ElementType::kBF16;
}

kernels::Activations Split(const Step& step, const kernels::Activations& x) {
  auto* halves = static_cast<BFloat16*>(step.workspace.rounded());
  kernels::SplitRows(step.pool, x, halves);
  return DenseRows(halves, ElementType::kBF16, 2 * x.rows, x.cols);
}

void RunRows(const Step& step, const LinearWeights& weights, const kernels::Activations& x,
             float* y, int64_t y_stride) {
  const float* bias = BiasOrNull(weights.bias);
  switch (RoundingOf(weights.inputs.format, step.options)) {
    case InputRounding::kInt8:
      return kernels::Linear(step.pool, weights.matrix, RoundToInt8(step, x), y, y_stride, bias);
    case InputRounding::kF32:
      return kernels::Linear(step.pool, weights.matrix, RoundToF32(step, weights.inputs, x), y,
                             y_stride, bias);
    case InputRounding::kNone: break;
  }
  const int64_t width = weights.matrix.rows;
  float* pairs = step.workspace.split_results();
  kernels::Linear(step.pool, weights.matrix, Split(step, x), pairs, width);
  kernels::AddPairs(step.pool, pairs, bias, x.rows, width, y, y_stride);
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

// The layer itself, without adapters.
void RunBase(const Step& step, const LinearWeights& weights, const kernels::Activations& x,
             float* y, int64_t y_stride, const kernels::RowMaxima& maxima) {
  if (RoundingOf(weights.inputs.format, step.options) == InputRounding::kNone &&
      !IsSplit(step, x)) {
    return kernels::Linear(step.pool, weights.matrix, x, y, y_stride, BiasOrNull(weights.bias),
                           maxima);
  }
  const int64_t most = step.workspace.rounded_rows();
  for (int64_t begin = 0; begin < x.rows; begin += most) {
    RunRows(step, weights, RowsOf(x, begin, std::min(most, x.rows - begin)), y + begin * y_stride,
            y_stride);
  }
  if (maxima.data != nullptr)
    kernels::FindMaxima(step.pool, y, y_stride, x.rows, weights.matrix.rows, maxima);
}

// Experts without adapters.
void RunBaseExperts(const Step& step, const ExpertWeights& weights, std::span<int32_t> row_begin,
                    const kernels::Activations& x, float* y) {
  CHECK_LE(x.rows, step.workspace.moe_pairs());
  if (step.observer != nullptr) {
    for (size_t e = 0; e < weights.matrices.size(); ++e) {
      step.observer->OnInputs(weights.matrices[e],
                              RowsOf(x, row_begin[e], row_begin[e + 1] - row_begin[e]));
    }
  }
  const int64_t width = weights.matrices.front().rows;
  const auto multiply = [&](const kernels::Activations& inputs, float* results) {
    kernels::GroupedLinear(step.pool, weights.matrices, row_begin, inputs, results, width,
                           BiasOrNull(weights.bias));
  };
  switch (RoundingOf(weights.inputs.front().format, step.options)) {
    case InputRounding::kInt8: return multiply(RoundToInt8(step, x), y);
    case InputRounding::kF32: return multiply(RoundOfExperts(step, weights, row_begin, x), y);
    case InputRounding::kNone: break;
  }
  if (!IsSplit(step, x)) return multiply(x, y);
  const float* pairs = step.workspace.split_results();
  for (int32_t& row : row_begin) row *= 2;
  kernels::GroupedLinear(step.pool, weights.matrices, row_begin, Split(step, x),
                         step.workspace.split_results(), width);
  for (int32_t& row : row_begin) row /= 2;
  if (weights.bias.empty())
    return kernels::AddPairs(step.pool, pairs, nullptr, x.rows, width, y, width);
  for (size_t e = 0; e < weights.matrices.size(); ++e) {
    const int64_t begin = row_begin[e], count = row_begin[e + 1] - begin;
    if (count == 0) continue;
    kernels::AddPairs(step.pool, pairs + 2 * begin * width,
                      weights.bias.data() + static_cast<int64_t>(e) * width, count, width,
                      y + begin * width, width);
  }
}

}  // namespace

void RunLinear(const Step& step, const LinearWeights& weights, const kernels::Activations& x,
               float* y, int64_t y_stride, int64_t first_row, const kernels::RowMaxima& maxima) {
  if (step.observer != nullptr) step.observer->OnInputs(weights.matrix, x);
  CHECK(step.lora == nullptr || maxima.data == nullptr, "an adapter changes what has maxima");
  RunBase(step, weights, x, y, y_stride, maxima);
  if (step.lora != nullptr)
    step.lora->Add(step.pool, weights.lora_layer, x, first_row, y, y_stride);
}

void RunExperts(const Step& step, const ExpertWeights& weights, std::span<int32_t> row_begin,
                const ExpertRows& rows, const kernels::Activations& x, float* y) {
  RunBaseExperts(step, weights, row_begin, x, y);
  if (step.lora == nullptr) return;
  step.lora->AddExperts(step.pool, weights.lora_layer, row_begin, rows, x, y,
                        weights.matrices.front().rows);
}

}  // namespace sluice
