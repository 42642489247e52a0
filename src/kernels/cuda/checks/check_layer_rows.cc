#include "kernels/cuda/checks/check_layer_rows.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "kernels/cuda/checks/rows_out.h"
#include "kernels/cuda/checks/test_numbers.h"
#include "kernels/cuda/checks/tolerances.h"

namespace sluice::checks {
namespace {

using device::DeviceKernels;
using device::RowsOut;

struct LayerShape {
  int64_t rows, layers, width;
};

void CheckLayerEmbeddings(CaseMemory& memory, Comparison& comparison, const LayerShape& shape) {
  constexpr int64_t kVocabulary = 40;
  constexpr float kEps = 1e-5f, kProjectionScale = 0.3f, kTableScale = 4.1f, kSumScale = 0.7f;
  TestNumbers numbers(61);
  const int64_t row_size = shape.layers * shape.width;
  const std::vector<float> x = numbers.Normals(shape.rows * row_size);
  const std::vector<uint16_t> table = ToBf16Bits(numbers.Normals(kVocabulary * row_size));
  const std::vector<float> weight = numbers.Normals(shape.width);
  std::vector<int32_t> tokens(static_cast<size_t>(shape.rows));
  for (int32_t& token : tokens) token = static_cast<int32_t>(numbers.Integer(0, kVocabulary - 1));
  tokens.back() = kVocabulary - 1;
  // A token that could not be drawn is looked up as token 0.
  if (tokens.size() > 1) tokens.front() = -1;
  const int32_t* device_tokens = memory.In(tokens);
  const uint16_t* device_table = memory.In(table);
  const float* device_weight = memory.In(weight);
  if (!memory.ok()) return;
  const auto run = [&](int64_t first, int64_t rows) {
    float* const data = memory.InOut(
        std::vector<float>(x.begin() + first * row_size, x.begin() + (first + rows) * row_size));
    memory.Launch(&DeviceKernels::layer_embeddings,
                  {device_tokens + first, device_table, rows, shape.layers, shape.width,
                   device_weight, kEps, kProjectionScale, kTableScale, kSumScale, data});
    return memory.Read<float>(data, rows * row_size);
  };
  const std::vector<float> got = run(0, shape.rows);
  for (int64_t layer = 0; layer < shape.rows * shape.layers; ++layer) {
    const float* from = x.data() + layer * shape.width;
    double squares = 0;
    for (int64_t i = 0; i < shape.width; ++i) {
      const double value = double{from[i]} * kProjectionScale;
      squares += value * value;
    }
    const double factor = 1 / std::sqrt(squares / static_cast<double>(shape.width) + kEps);
    const int64_t token = std::max(tokens[static_cast<size_t>(layer / shape.layers)], 0);
    const uint16_t* own =
        table.data() + (token * shape.layers + layer % shape.layers) * shape.width;
    // The error bound includes these roundings: scaling, the sum of squares, its mean, eps, the
    // root and its inverse, products, the sum.
    const double roundings = static_cast<double>(shape.width) / 2 + kMathUnits + 10;
    for (int64_t i = 0; i < shape.width; ++i) {
      const double normed =
          weight[static_cast<size_t>(i)] * (double{from[i]} * kProjectionScale * factor);
      const double looked_up = double{FromBf16Bits(own[i])} * kTableScale;
      comparison.AddF32(
          got[static_cast<size_t>(layer * shape.width + i)], (normed + looked_up) * kSumScale,
          kSumScale * (std::abs(normed) * Gamma(roundings) + std::abs(looked_up) * Gamma(4)));
    }
  }
  comparison.SetSubject("a row alone");
  const int64_t row = shape.rows / 2;
  const std::vector<float> alone = run(row, 1);
  for (size_t i = 0; i < alone.size(); ++i)
    comparison.AddF32(alone[i], got[static_cast<size_t>(row * row_size) + i], 0);
  comparison.SetSubject("");
}

// Checks gelu(x) multiplied by factors, with a larger row stride.
void CheckFactors(CaseMemory& memory, Comparison& comparison, const LayerShape& shape,
                  ElementType x_type) {
  TestNumbers numbers(62);
  const int64_t stride = shape.layers * shape.width, layer = shape.layers - 1;
  std::vector<float> x = numbers.Normals(shape.rows * shape.width);
  const std::vector<uint16_t> bits = ToBf16Bits(x);
  const bool is_bf16 = x_type == ElementType::kBF16;
  for (size_t i = 0; is_bf16 && i < x.size(); ++i) x[i] = FromBf16Bits(bits[i]);
  const std::vector<float> factors = numbers.Normals(shape.rows * stride);
  const auto* const device_x = is_bf16 ? reinterpret_cast<const std::byte*>(memory.In(bits))
                                       : reinterpret_cast<const std::byte*>(memory.In(x));
  const float* device_factors = memory.In(factors);
  if (!memory.ok()) return;
  ExactRows exact{shape.rows, shape.width, {}, {}};
  for (int64_t i = 0; i < shape.rows * shape.width; ++i) {
    const double z = x[static_cast<size_t>(i)];
    const double exponent = z * (-1.5957691216f - 0.0713548163f * (z * z));
    const double factor = factors[static_cast<size_t>(i / shape.width * stride +
                                                      layer * shape.width + i % shape.width)];
    const double value = z / (1 + std::exp(exponent)) * factor;
    exact.values.push_back(value);
    // The four roundings of the exponent cause a relative error of exp in proportion to the
    // exponent's magnitude. The roundings of exp, the sum, the division and the product are added
    // to it.
    exact.errors.push_back(std::abs(value) * Gamma(kMathUnits + 4 + 4 * std::abs(exponent)));
  }
  CompareRows(memory, comparison, exact, [&](int64_t first, int64_t rows, const RowsOut& out) {
    memory.Launch(
        &DeviceKernels::silu_mul,
        {device_x + first * shape.width * (is_bf16 ? 2 : 4), x_type, rows, shape.width, out,
         /*gelu=*/true, device_factors + first * stride + layer * shape.width, stride});
  });
}

// Checks (residual + delta * delta_factor) * factor, rows without a norm, and rows in which the
// norm replaces the sum.
void CheckScaledSums(CaseMemory& memory, Comparison& comparison, const LayerShape& shape) {
  constexpr float kFactor = 0.71f;
  // Products with this factor are exact, so a compiler may fuse them.
  constexpr float kDeltaFactor = 0.25f;
  TestNumbers numbers(63);
  const std::vector<float> x = numbers.Normals(shape.rows * shape.width);
  const std::vector<float> delta = numbers.Normals(shape.rows * shape.width);
  const std::vector<float> weight = numbers.Normals(shape.width);
  const float* device_delta = memory.In(delta);
  const float* device_weight = memory.In(weight);
  std::vector<float> sums(x.size());
  for (size_t i = 0; i < x.size(); ++i) sums[i] = (x[i] + delta[i] * kDeltaFactor) * kFactor;
  device::RmsNormArgs args = {.residual = memory.InOut(x),
                              .delta = device_delta,
                              .delta_type = ElementType::kF32,
                              .weight = nullptr,
                              .eps = 1e-5f,
                              .rows = shape.rows,
                              .cols = shape.width,
                              .out = {.data = memory.Out<uint16_t>(std::ssize(x))},
                              .out_f32 = nullptr,
                              .sum_factor = kFactor,
                              .delta_factor = kDeltaFactor};
  memory.Launch(&DeviceKernels::rms_norm, args);
  const auto residual = memory.Read<float>(args.residual, std::ssize(x));
  const auto out = memory.Read<uint16_t>(static_cast<uint16_t*>(args.out.data), std::ssize(x));
  for (size_t i = 0; i < sums.size(); ++i) {
    comparison.AddF32(residual[i], sums[i], 0);
    comparison.AddEqual(out[i], ToBFloat16(sums[i]).bits);
  }
  comparison.SetSubject("in the place of the sum");
  args.weight = device_weight;
  args.out = {.data = memory.Out<float>(std::ssize(x)), .type = ElementType::kF32};
  args.residual = memory.InOut(x);
  memory.Launch(&DeviceKernels::rms_norm, args);
  const auto apart = memory.Read<float>(static_cast<float*>(args.out.data), std::ssize(x));
  args.residual = memory.InOut(x);
  args.out.data = args.residual;
  memory.Launch(&DeviceKernels::rms_norm, args);
  const auto inside = memory.Read<float>(args.residual, std::ssize(x));
  for (size_t i = 0; i < apart.size(); ++i) comparison.AddF32(inside[i], apart[i], 0);
  comparison.SetSubject("");
}

void CheckCapLogits(CaseMemory& memory, Comparison& comparison, int64_t count, float scale) {
  constexpr float kCap = 30;
  std::vector<float> x = TestNumbers(64).Normals(count);
  for (float& value : x) value *= 40;
  x.front() = 0;
  x.back() = -1e30f;
  float* const logits = memory.InOut(x);
  memory.Launch(&DeviceKernels::cap_logits, {logits, count, kCap, scale});
  const auto got = memory.Read<float>(logits, count);
  for (size_t i = 0; i < x.size(); ++i) {
    // The error bound includes these roundings: the product and the quotient in exp's argument,
    // each of which changes exp by less than a unit; exp, two sums, a quotient, the product.
    comparison.AddF32(got[i], kCap * std::tanh(double{x[i]} * scale / kCap),
                      kCap * Gamma(kMathUnits + 7));
  }
  comparison.SetSubject("without a cap");
  float* const scaled = memory.InOut(x);
  memory.Launch(&DeviceKernels::cap_logits, {scaled, count, /*cap=*/0, scale});
  const auto products = memory.Read<float>(scaled, count);
  for (size_t i = 0; i < x.size(); ++i) comparison.AddF32(products[i], x[i] * scale, 0);
  comparison.SetSubject("");
}

// Checks CombineExpertsArgs::sum_gates: a gated row plus one expert's results.
void CheckSharedGate(CaseMemory& memory, Comparison& comparison, const LayerShape& shape) {
  TestNumbers numbers(65);
  const int64_t rows = shape.rows, cols = shape.width;
  const std::vector<float> sum = numbers.Normals(rows * cols), y = numbers.Normals(rows * cols);
  std::vector<float> gates = numbers.Normals(rows);
  gates.front() = 1e4f;  // sigmoid is 1
  gates.back() = -1e4f;  // sigmoid is 0
  std::vector<int32_t> place;
  for (int64_t row = 0; row < rows; ++row) place.push_back(static_cast<int32_t>(row));
  device::CombineExpertsArgs args{};
  args.y = memory.In(y);
  args.y_type = ElementType::kF32;
  args.place = memory.In(place);
  args.rows = rows;
  args.cols = cols;
  args.top_k = 1;
  args.add = true;
  args.sum = memory.InOut(sum);
  args.sum_gates = memory.In(gates);
  memory.Launch(&DeviceKernels::combine_experts, args);
  const auto got = memory.Read<float>(args.sum, rows * cols);
  for (size_t i = 0; i < got.size(); ++i) {
    const double factor = 1 / (1 + std::exp(-double{gates[i / static_cast<size_t>(cols)]}));
    // The error bound includes these roundings: exp, a sum, the division, the product, another sum.
    comparison.AddF32(
        got[i], sum[i] * factor + y[i],
        std::abs(sum[i] * factor) * Gamma(kMathUnits + 4) + std::abs(double{y[i]}) * Gamma(1));
  }
}

// Computes logits without choosing experts (also for a single row of weights), and chooses experts
// from given logits. The results must equal those of one launch exactly.
void CheckRouterParts(CaseMemory& memory, Comparison& comparison) {
  constexpr int64_t kRows = 11, kWidth = 72;
  TestNumbers numbers(66);
  device::RouterArgs args{};
  args.x = memory.In(numbers.Normals(kRows * kWidth));
  args.rows = kRows;
  args.k = kWidth;
  args.normalize = true;
  const std::vector<uint16_t> weight = ToBf16Bits(numbers.Normals(10 * kWidth));
  args.weight = memory.In(weight);
  const auto logits_of = [&](int64_t experts) {
    args.num_experts = experts;
    args.top_k = 0;
    args.logits = memory.Out<float>(kRows * experts);
    memory.Launch(&DeviceKernels::router, args);
    return memory.Read<float>(args.logits, kRows * experts);
  };
  const auto choose = [&](const uint16_t* from, float* logits) {
    device::RouterArgs all = args;
    all.weight = from;
    all.num_experts = 10;
    all.top_k = 3;
    all.logits = logits;
    all.chosen = memory.Out<int32_t>(kRows * 3);
    all.expert_weights = memory.Out<float>(kRows * 3);
    memory.Launch(&DeviceKernels::router, all);
    return std::pair(memory.Read<int32_t>(all.chosen, kRows * 3),
                     memory.Read<float>(all.expert_weights, kRows * 3));
  };
  const std::vector<float> ten = logits_of(10), one = logits_of(1);
  const auto [chosen, weights] = choose(args.weight, memory.Out<float>(kRows * 10));
  const auto [chosen_later, weights_later] = choose(nullptr, memory.InOut(ten));
  for (size_t i = 0; i < chosen.size(); ++i) {
    comparison.AddEqual(chosen_later[i], chosen[i]);
    comparison.AddF32(weights_later[i], weights[i], 0);
  }
  for (size_t row = 0; row < one.size(); ++row) comparison.AddF32(one[row], ten[row * 10], 0);
}

}  // namespace

void CheckLayerRows(CheckRun& run) {
  std::vector<LayerShape> shapes = {{3, 5, 16}, {2, 3, 256}, {5, 2, 264}};
  if (run.with_large_shapes()) shapes.push_back({257, 42, 256});
  for (const LayerShape& shape : shapes) {
    const std::string text =
        fmt::format("{} rows, {} layers of {}", shape.rows, shape.layers, shape.width);
    run.Case("layer_embeddings", text, [&](CaseMemory& memory, Comparison& comparison) {
      CheckLayerEmbeddings(memory, comparison, shape);
    });
    for (const ElementType type : {ElementType::kF32, ElementType::kBF16}) {
      const std::string words = type == ElementType::kF32 ? "f32" : "bf16";
      run.Case("silu_mul", fmt::format("{}, factors of the last, {}", text, words),
               [&](CaseMemory& memory, Comparison& comparison) {
                 CheckFactors(memory, comparison, shape, type);
               });
    }
    run.Case("rms_norm", fmt::format("{} x {}, scaled sums", shape.rows, shape.width),
             [&](CaseMemory& memory, Comparison& comparison) {
               CheckScaledSums(memory, comparison, shape);
             });
  }
  for (const LayerShape& shape : shapes) {
    run.Case("shared_gate", fmt::format("{} x {}", shape.rows, shape.width),
             [&](CaseMemory& memory, Comparison& comparison) {
               CheckSharedGate(memory, comparison, shape);
             });
  }
  run.Case("router", "logits and choice apart", CheckRouterParts);
  for (const int64_t count : {1, 13, 2048, 5000}) {
    for (const float scale : {1.0f, 0.3f}) {
      run.Case("cap_logits", fmt::format("{} logits, scaled by {}", count, scale),
               [&](CaseMemory& memory, Comparison& comparison) {
                 CheckCapLogits(memory, comparison, count, scale);
               });
    }
  }
}

}  // namespace sluice::checks
