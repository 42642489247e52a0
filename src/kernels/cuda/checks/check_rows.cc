// Operators that go over rows: embedding, norm, activation, conversion, choice of rows.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/thread_pool.h"
#include "kernels/cuda/checks/check_nvf4_rows.h"
#include "kernels/cuda/checks/check_run.h"
#include "kernels/cuda/checks/row_outputs.h"
#include "kernels/cuda/checks/test_numbers.h"
#include "kernels/rms_norm.h"

namespace sluice::checks {
namespace {

struct RowShape {
  int64_t rows, cols;
};

// Widths that are whole vectors and that are not, then those of Qwen3 and Llama.
std::vector<RowShape> Shapes(const CheckRun& run) {
  std::vector<RowShape> shapes = {{1, 64}, {3, 96}, {2, 257}, {5, 1024}};
  if (run.with_large_shapes()) {
    for (const RowShape shape : {RowShape{64, 4096}, {33, 5120}, {256, 8192}, {7, 28672}})
      shapes.push_back(shape);
  }
  return shapes;
}

std::string ShapeText(const RowShape& shape, const char* words) {
  return fmt::format("{} x {}, {}", shape.rows, shape.cols, words);
}

// F32 or BF16 numbers on the device, and what they are.
struct RowInput {
  std::vector<float> values;
  const void* data = nullptr;
};
RowInput Input(CaseMemory& memory, std::vector<float> values, ElementType type) {
  RowInput input;
  if (type == ElementType::kBF16) {
    const std::vector<uint16_t> bits = ToBf16Bits(values);
    for (size_t i = 0; i < values.size(); ++i) values[i] = FromBf16Bits(bits[i]);
    input.data = memory.In(bits);
  } else {
    input.data = memory.In(values);
  }
  input.values = std::move(values);
  return input;
}

Status CheckEmbedding(CheckRun& run, CaseMemory& memory, Comparison& comparison,
                      const RowShape& shape) {
  constexpr int64_t kVocabulary = 300;
  TestNumbers numbers(41);
  const RowInput table =
      Input(memory, numbers.Normals(kVocabulary * shape.cols), ElementType::kBF16);
  std::vector<int32_t> tokens(static_cast<size_t>(shape.rows));
  for (int32_t& token : tokens) token = static_cast<int32_t>(numbers.Integer(0, kVocabulary - 1));
  tokens.back() = kVocabulary - 1;
  const int32_t* device_tokens = memory.In(tokens);
  float* out = memory.Out<float>(shape.rows * shape.cols);
  if (!memory.ok()) return memory.status();
  run.device().kernels().embedding(
      run.device().handle(),
      {device_tokens, static_cast<const uint16_t*>(table.data), shape.rows, shape.cols, out});
  const auto got = memory.Read(out, shape.rows * shape.cols);
  for (size_t i = 0; memory.ok() && i < got.size(); ++i) {
    const int64_t row = tokens[i / static_cast<size_t>(shape.cols)];
    const auto from = static_cast<size_t>(row * shape.cols) + i % static_cast<size_t>(shape.cols);
    comparison.AddF32(got[i], table.values[from], 0);
  }
  return {};
}

// `delta_type` as an index: none, F32, BF16.
constexpr const char* kDeltaNames[] = {"no delta", "f32 delta", "bf16 delta"};

Status CheckRmsNorm(CheckRun& run, CaseMemory& memory, Comparison& comparison,
                    const RowShape& shape, const RowFormat& format, int delta_kind, bool is_exact) {
  constexpr float kEps = 1e-5f;
  TestNumbers numbers(42);
  const int64_t count = shape.rows * shape.cols;
  std::vector<float> x = is_exact ? numbers.Integers(count, 5) : numbers.Normals(count);
  const ElementType delta_type = delta_kind == 2 ? ElementType::kBF16 : ElementType::kF32;
  RowInput delta;
  float* residual = memory.InOut(x);
  if (delta_kind > 0)
    delta =
        Input(memory, is_exact ? numbers.Integers(count, 5) : numbers.Normals(count), delta_type);
  std::vector<float> weight(static_cast<size_t>(shape.cols));
  for (float& value : weight) value = numbers.Uniform(0.5f, 1.5f);
  const float* device_weight = memory.In(weight);
  RowsOutput output(memory, format, shape.rows, shape.cols);
  const bool with_f32 = delta_kind == 1;
  float* out_f32 = with_f32 ? memory.Out<float>(count) : nullptr;
  if (!memory.ok()) return memory.status();
  run.device().kernels().rms_norm(
      run.device().handle(), {residual, delta.data, delta_type, device_weight, kEps, shape.rows,
                              shape.cols, output.args(), out_f32});

  ExactRows exact{shape.rows, shape.cols, {}, {}};
  for (int64_t row = 0; row < shape.rows; ++row) {
    double squares = 0;
    for (int64_t col = 0; col < shape.cols; ++col) {
      const auto i = static_cast<size_t>(row * shape.cols + col);
      if (delta_kind > 0) x[i] += delta.values[i];
      squares += static_cast<double>(x[i]) * x[i];
    }
    const double factor = 1 / std::sqrt(squares / static_cast<double>(shape.cols) + kEps);
    // The sum of squares (none of integers), its mean, eps, the root and its inverse, two products.
    const double roundings = (is_exact ? 0 : static_cast<double>(shape.cols) / 2) + kMathUnits + 5;
    for (int64_t col = 0; col < shape.cols; ++col) {
      const auto i = static_cast<size_t>(row * shape.cols + col);
      const double value = weight[static_cast<size_t>(col)] * (x[i] * factor);
      exact.values.push_back(value);
      exact.errors.push_back(std::abs(value) * Gamma(roundings));
    }
  }
  output.Compare(exact, comparison);
  const auto sums = memory.Read<float>(residual, count);
  for (size_t i = 0; memory.ok() && i < sums.size(); ++i) comparison.AddF32(sums[i], x[i], 0);
  if (with_f32 && memory.ok()) {
    const auto got = memory.Read<float>(out_f32, count);
    for (size_t i = 0; memory.ok() && i < got.size(); ++i)
      comparison.AddF32(got[i], exact.values[i], exact.errors[i]);
  }
  return {};
}

Status CheckSiluMul(CheckRun& run, CaseMemory& memory, Comparison& comparison,
                    const RowShape& shape, const RowFormat& format, ElementType x_type) {
  TestNumbers numbers(43);
  std::vector<float> values = numbers.Normals(2 * shape.rows * shape.cols);
  for (float& value : values) value *= 4;
  const RowInput x = Input(memory, std::move(values), x_type);
  RowsOutput output(memory, format, shape.rows, shape.cols);
  if (!memory.ok()) return memory.status();
  run.device().kernels().silu_mul(run.device().handle(),
                                  {x.data, x_type, shape.rows, shape.cols, output.args()});
  ExactRows exact{shape.rows, shape.cols, {}, {}};
  for (int64_t row = 0; row < shape.rows; ++row) {
    for (int64_t col = 0; col < shape.cols; ++col) {
      const auto gate = static_cast<size_t>(row * 2 * shape.cols + col);
      const double z = x.values[gate], up = x.values[gate + static_cast<size_t>(shape.cols)];
      const double value = z / (1 + std::exp(-z)) * up;
      exact.values.push_back(value);
      // exp, the sum, the division, the product.
      exact.errors.push_back(std::abs(value) * Gamma(kMathUnits + 4));
    }
  }
  output.Compare(exact, comparison);
  return {};
}

Status CheckConvertRows(CheckRun& run, CaseMemory& memory, Comparison& comparison,
                        const RowShape& shape, const RowFormat& format, ElementType x_type) {
  TestNumbers numbers(44);
  std::vector<float> values = numbers.Normals(shape.rows * shape.cols);
  // A row of zeros, and numbers beyond the largest code.
  for (int64_t col = 0; col < shape.cols && shape.rows > 1; ++col)
    values[static_cast<size_t>(col)] = 0;
  values.back() = 1e4f;
  const RowInput x = Input(memory, std::move(values), x_type);
  RowsOutput output(memory, format, shape.rows, shape.cols);
  if (!memory.ok()) return memory.status();
  run.device().kernels().convert_rows(run.device().handle(),
                                      {x.data, x_type, shape.rows, shape.cols, output.args()});
  ExactRows exact{shape.rows, shape.cols, {x.values.begin(), x.values.end()}, {}};
  exact.errors.resize(exact.values.size(), 0);
  output.Compare(exact, comparison);
  return {};
}

Status CheckTakeRows(CheckRun& run, CaseMemory& memory, Comparison& comparison, int64_t rows,
                     int64_t row_bytes) {
  constexpr int64_t kRows = 50;
  TestNumbers numbers(45);
  std::vector<uint8_t> in(static_cast<size_t>(kRows * row_bytes));
  for (uint8_t& byte : in) byte = static_cast<uint8_t>(numbers.Bits());
  std::vector<int32_t> indices(static_cast<size_t>(rows));
  for (int32_t& index : indices) index = static_cast<int32_t>(numbers.Integer(0, kRows - 1));
  const uint8_t* device_in = memory.In(in);
  const int32_t* device_indices = memory.In(indices);
  uint8_t* out = memory.Out<uint8_t>(rows * row_bytes);
  if (!memory.ok()) return memory.status();
  run.device().kernels().take_rows(run.device().handle(),
                                   {device_in, device_indices, rows, row_bytes, out});
  const auto got = memory.Read(out, rows * row_bytes);
  for (size_t i = 0; memory.ok() && i < got.size(); ++i) {
    const int64_t row = indices[i / static_cast<size_t>(row_bytes)];
    const auto from = static_cast<size_t>(row * row_bytes) + i % static_cast<size_t>(row_bytes);
    comparison.AddEqual(got[i], in[from]);
  }
  return {};
}

}  // namespace

void CheckRows(CheckRun& run) {
  const std::vector<RowShape> shapes = Shapes(run);
  for (const RowShape& shape : shapes) {
    run.Case("embedding", ShapeText(shape, "bf16"),
             [&](CaseMemory& memory, Comparison& comparison) {
               return CheckEmbedding(run, memory, comparison, shape);
             });
  }
  for (const RowShape& shape : shapes) {
    for (const RowFormat& format : kRowFormats) {
      // Every way of a delta meets every format of the output in some shape.
      const int delta_kind =
          static_cast<int>((&format - kRowFormats + (&shape - shapes.data())) % 3);
      for (const bool is_exact : {true, false}) {
        const std::string words = fmt::format("{}, {}, {}", format.name, kDeltaNames[delta_kind],
                                              is_exact ? "integers" : "normal");
        run.Case("rms_norm", ShapeText(shape, words.c_str()),
                 [&](CaseMemory& memory, Comparison& comparison) {
                   return CheckRmsNorm(run, memory, comparison, shape, format, delta_kind,
                                       is_exact);
                 });
      }
    }
  }
  for (const RowShape& shape : shapes) {
    for (const RowFormat& format : kRowFormats) {
      for (const ElementType x_type : {ElementType::kF32, ElementType::kBF16}) {
        const std::string words =
            fmt::format("{} to {}", x_type == ElementType::kF32 ? "f32" : "bf16", format.name);
        run.Case("silu_mul", ShapeText(shape, words.c_str()),
                 [&](CaseMemory& memory, Comparison& comparison) {
                   return CheckSiluMul(run, memory, comparison, shape, format, x_type);
                 });
        run.Case("convert_rows", ShapeText(shape, words.c_str()),
                 [&](CaseMemory& memory, Comparison& comparison) {
                   return CheckConvertRows(run, memory, comparison, shape, format, x_type);
                 });
      }
    }
  }
  CheckNvF4Rows(run);
  for (const int64_t row_bytes : {16, 64, 2048}) {
    run.Case("take_rows", fmt::format("9 rows of {} bytes", row_bytes),
             [&](CaseMemory& memory, Comparison& comparison) {
               return CheckTakeRows(run, memory, comparison, 9, row_bytes);
             });
  }
}

}  // namespace sluice::checks
