// Linear layers and experts; rounds their inputs if the checkpoint's scheme and the options require
// it.
#include <algorithm>

#include "base/check.h"
#include "kernels/block_maxima.h"
#include "kernels/grouped_linear.h"
#include "kernels/linear.h"
#include "kernels/quantize_rows.h"
#include "kernels/split_rows.h"
#include "models/cpu/walk.h"

namespace sluice {
namespace {

// Returns the elements of `bias`, or null if the layer has none.
const float* BiasOrNull(const std::vector<float>& bias) {
  return bias.empty() ? nullptr : bias.data();
}

// Returns rows [begin, begin + count) of `x`.
kernels::Activations RowsOf(const kernels::Activations& x, int64_t begin, int64_t count) {
  kernels::Activations rows = x;
  rows.data = static_cast<const std::byte*>(x.data) + begin * x.stride * BitsPerElement(x.type) / 8;
  rows.rows = count;
  return rows;
}

kernels::Activations Dense(const void* data, ElementType type, int64_t rows, int64_t cols) {
  return {.data = data, .type = type, .rows = rows, .cols = cols, .stride = cols};
}

}  // namespace

kernels::Activations CpuWalk::RoundToInt8(const program::RoundingBuffers& buffers,
                                          const kernels::Activations& x) const {
  auto* const integers = reinterpret_cast<int8_t*>(At(buffers.rounded, 0));
  float* const scales = F32At(buffers.scales, 0);
  kernels::QuantizeInt8Rows(pool_, x, integers, scales);
  kernels::Activations rounded = Dense(integers, ElementType::kI8, x.rows, x.cols);
  rounded.scales = scales;
  return rounded;
}

kernels::Activations CpuWalk::Split(const program::RoundingBuffers& buffers,
                                    const kernels::Activations& x) const {
  auto* const halves = reinterpret_cast<BFloat16*>(At(buffers.rounded, 0));
  kernels::SplitRows(pool_, x, halves);
  return Dense(halves, ElementType::kBF16, 2 * x.rows, x.cols);
}

void CpuWalk::ApplyLora(int32_t layer, const LinearWeights* weights, const kernels::Activations& x,
                        float* y, int64_t y_stride) const {
  if (step_.lora == nullptr) return;
  step_.lora->Replace(pool_, weights, weights == nullptr ? nullptr : &weights->bias, x, first_, y,
                      y_stride);
  step_.lora->Add(pool_, layer, x, first_, y, y_stride);
}

void CpuWalk::MultiplyRounded(const program::Project& op, const LinearWeights& weights,
                              const kernels::Activations& x, float* y) const {
  const float* const bias = BiasOrNull(weights.bias);
  const auto multiply = [&](const kernels::Activations& inputs) {
    kernels::Linear(pool_, weights.matrix, inputs, y, op.y_stride, bias);
  };
  switch (RoundingOf(weights.inputs.format, options_)) {
    case InputRounding::kInt8: return multiply(RoundToInt8(op.rounding, x));
    case InputRounding::kF32: {
      float* const rounded = F32At(op.rounding.rounded, 0);
      kernels::RoundRows(pool_, weights.inputs.format, weights.inputs.scale, x, rounded);
      return multiply(Dense(rounded, ElementType::kF32, x.rows, x.cols));
    }
    case InputRounding::kNone: break;
  }
  float* const pairs = F32At(op.rounding.pairs, 0);
  kernels::Linear(pool_, weights.matrix, Split(op.rounding, x), pairs, op.n);
  kernels::AddPairs(pool_, pairs, bias, x.rows, op.n, y, op.y_stride);
}

void CpuWalk::operator()(const program::Project& op) {
  const kernels::Activations x = Rows(op.x, op.x_type, op.k);
  float* const y = F32At(op.y, op.y_stride);
  kernels::RowMaxima maxima;
  if (op.finds_maxima && step_.lora == nullptr)
    maxima = {step_.input.maxima.data(), kernels::NumMaxima(op.n)};
  if (op.linear == program::kNone) {
    const kernels::PackedMatrix& table = *program_.tables[static_cast<size_t>(op.table)];
    kernels::Linear(pool_, table, x, y, op.y_stride, nullptr, maxima);
    return ApplyLora(op.lora, nullptr, x, y, op.y_stride);
  }
  const LinearWeights& weights = *program_.linears[static_cast<size_t>(op.linear)];
  if (step_.observer != nullptr) step_.observer->OnInputs(weights.matrix, x);
  const bool is_plain =
      op.is_plain ||
      (RoundingOf(weights.inputs.format, options_) == InputRounding::kNone && !IsSplit(x));
  if (is_plain) {
    kernels::Linear(pool_, weights.matrix, x, y, op.y_stride, BiasOrNull(weights.bias), maxima);
  } else {
    const int64_t most = program_.limits.rounded;
    for (int64_t begin = 0; begin < x.rows; begin += most) {
      MultiplyRounded(op, weights, RowsOf(x, begin, std::min(most, x.rows - begin)),
                      y + begin * op.y_stride);
    }
    if (maxima.data != nullptr) kernels::FindMaxima(pool_, y, op.y_stride, x.rows, op.n, maxima);
  }
  ApplyLora(op.lora, &weights, x, y, op.y_stride);
}

void CpuWalk::MultiplyPlain(program::LinearId linear, int32_t lora, const kernels::Activations& x,
                            float* y) const {
  const LinearWeights& weights = *program_.linears[static_cast<size_t>(linear)];
  const int64_t n = weights.matrix.rows;
  kernels::Linear(pool_, weights.matrix, x, y, n, BiasOrNull(weights.bias));
  ApplyLora(lora, &weights, x, y, n);
}

// Rounds the rows of each expert with the scale of that expert's inputs.
kernels::Activations CpuWalk::RoundOfExperts(const program::ProjectExperts& op,
                                             const ExpertWeights& weights,
                                             std::span<const int32_t> row_begin,
                                             const kernels::Activations& x) const {
  float* const rounded = F32At(op.rounding.rounded, 0);
  size_t expert = 0;
  while (expert < weights.inputs.size()) {
    const LinearInputs& inputs = weights.inputs[expert];
    const int64_t begin = row_begin[expert];
    do ++expert;
    while (expert < weights.inputs.size() && weights.inputs[expert] == inputs);
    const int64_t count = row_begin[expert] - begin;
    if (count == 0) continue;
    kernels::RoundRows(pool_, inputs.format, inputs.scale, RowsOf(x, begin, count),
                       rounded + begin * x.cols);
  }
  return Dense(rounded, ElementType::kF32, x.rows, x.cols);
}

void CpuWalk::MultiplyExperts(const program::ProjectExperts& op, const ExpertWeights& weights,
                              std::span<int32_t> row_begin, const kernels::Activations& x,
                              float* y) const {
  const auto multiply = [&](const kernels::Activations& inputs) {
    kernels::GroupedLinear(pool_, weights.matrices, row_begin, inputs, y, op.n,
                           BiasOrNull(weights.bias));
  };
  switch (RoundingOf(weights.inputs.front().format, options_)) {
    case InputRounding::kInt8: return multiply(RoundToInt8(op.rounding, x));
    case InputRounding::kF32: return multiply(RoundOfExperts(op, weights, row_begin, x));
    case InputRounding::kNone: break;
  }
  if (!IsSplit(x)) return multiply(x);
  float* const pairs = F32At(op.rounding.pairs, 0);
  for (int32_t& row : row_begin) row *= 2;
  kernels::GroupedLinear(pool_, weights.matrices, row_begin, Split(op.rounding, x), pairs, op.n);
  for (int32_t& row : row_begin) row /= 2;
  if (weights.bias.empty()) return kernels::AddPairs(pool_, pairs, nullptr, x.rows, op.n, y, op.n);
  for (size_t e = 0; e < weights.matrices.size(); ++e) {
    const int64_t begin = row_begin[e], count = row_begin[e + 1] - begin;
    if (count == 0) continue;
    kernels::AddPairs(pool_, pairs + 2 * begin * op.n,
                      weights.bias.data() + static_cast<int64_t>(e) * op.n, count, op.n,
                      y + begin * op.n, op.n);
  }
}

void CpuWalk::operator()(const program::ProjectExperts& op) {
  const ExpertWeights& weights = *program_.experts[static_cast<size_t>(op.experts)];
  const MoeSpec& spec = Moe(op.moe);
  const kernels::Activations x = Rows(op.x, ElementType::kF32, op.k);
  CHECK_LE(x.rows, program_.limits.pairs);
  float* const y = F32At(op.y, op.n);
  const std::span<int32_t> row_begin(I32At(op.row_begin, 0),
                                     static_cast<size_t>(spec.num_experts + 1));
  if (step_.observer != nullptr) {
    for (size_t e = 0; e < weights.matrices.size(); ++e) {
      step_.observer->OnInputs(weights.matrices[e],
                               RowsOf(x, row_begin[e], row_begin[e + 1] - row_begin[e]));
    }
  }
  MultiplyExperts(op, weights, row_begin, x, y);
  if (step_.lora == nullptr) return;
  const ExpertRows rows{.order = I32At(op.order, 0), .top_k = spec.top_k, .first = first_};
  step_.lora->AddExperts(pool_, op.lora, row_begin, rows, x, y, op.n);
}

}  // namespace sluice
