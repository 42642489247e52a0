// Checks row operators: embedding, norm, activation, conversion, selection of rows.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/cuda/checks/check_encoder_rows.h"
#include "kernels/cuda/checks/check_exchange.h"
#include "kernels/cuda/checks/check_layer_rows.h"
#include "kernels/cuda/checks/check_mxf4_rows.h"
#include "kernels/cuda/checks/check_nvf4_rows.h"
#include "kernels/cuda/checks/check_run.h"
#include "kernels/cuda/checks/rows_out.h"
#include "kernels/cuda/checks/test_numbers.h"
#include "kernels/cuda/checks/tolerances.h"

namespace sluice::checks {
namespace {

using device::DeviceKernels;
using device::RowsOut;

struct RowShape {
  int64_t rows, cols;
};

// Widths that consist of whole vectors, widths that do not, widths with more vectors than a block
// has threads, and widths with whole groups of NVFP4; then those of Qwen3 and Llama.
std::vector<RowShape> Shapes(const CheckRun& run) {
  if (!run.with_all_shapes()) return {{1, 64}, {3, 96}, {2, 257}, {5, 1024}};
  std::vector<RowShape> shapes = {
      {5, 1},    {5, 7},    {4, 20},   {5, 33},    {5, 36},    {1, 64},    {3, 96},   {5, 100},
      {3, 128},  {2, 257},  {4, 352},  {5, 1000},  {5, 1024},  {3, 2048},  {2, 2056}, {2, 4104},
      {2, 6144}, {2, 8192}, {3, 8208}, {2, 12288}, {2, 16392}, {1, 16389}, {130, 416}};
  if (run.with_large_shapes()) {
    for (const RowShape shape : {RowShape{64, 4096}, {33, 5120}, {256, 8192}, {7, 28672}})
      shapes.push_back(shape);
  }
  return shapes;
}

std::string ShapeText(const RowShape& shape, const char* words) {
  return fmt::format("{} x {}, {}", shape.rows, shape.cols, words);
}

// F32 or BF16 numbers on the device, and their values.
struct RowInput {
  std::vector<float> values;
  const std::byte* data = nullptr;
  int64_t number_bytes = 4;

  const void* From(int64_t element) const {
    return data == nullptr ? nullptr : data + element * number_bytes;
  }
};
RowInput Input(CaseMemory& memory, std::vector<float> values, ElementType type) {
  RowInput input;
  if (type == ElementType::kBF16) {
    const std::vector<uint16_t> bits = ToBf16Bits(values);
    for (size_t i = 0; i < values.size(); ++i) values[i] = FromBf16Bits(bits[i]);
    input.data = reinterpret_cast<const std::byte*>(memory.In(bits));
    input.number_bytes = 2;
  } else {
    input.data = reinterpret_cast<const std::byte*>(memory.In(values));
  }
  input.values = std::move(values);
  return input;
}

void CheckEmbedding(CaseMemory& memory, Comparison& comparison, const RowShape& shape) {
  constexpr int64_t kVocabulary = 300;
  TestNumbers numbers(41);
  const RowInput table =
      Input(memory, numbers.Normals(kVocabulary * shape.cols), ElementType::kBF16);
  std::vector<int32_t> tokens(static_cast<size_t>(shape.rows));
  for (int32_t& token : tokens) token = static_cast<int32_t>(numbers.Integer(0, kVocabulary - 1));
  tokens.front() = 0;
  tokens.back() = kVocabulary - 1;
  if (tokens.size() > 3) tokens[2] = tokens[1];
  float* out = memory.Out<float>(shape.rows * shape.cols);
  memory.Launch(&DeviceKernels::embedding,
                {memory.In(tokens), static_cast<const uint16_t*>(table.From(0)), shape.rows,
                 shape.cols, out});
  const auto got = memory.Read(out, shape.rows * shape.cols);
  for (size_t i = 0; i < got.size(); ++i) {
    const int64_t row = tokens[i / static_cast<size_t>(shape.cols)];
    const auto from = static_cast<size_t>(row * shape.cols) + i % static_cast<size_t>(shape.cols);
    comparison.AddF32(got[i], table.values[from], 0);
  }
}

// Type of the delta that is added to the residual.
enum class Delta : uint8_t { kNone, kF32, kBF16 };
constexpr const char* kDeltaNames[] = {"no delta", "f32 delta", "bf16 delta"};

// With integers, the sum of squares is exact. If nothing is added, the last of several rows is
// zero.
void CheckRmsNorm(CaseMemory& memory, Comparison& comparison, const RowShape& shape, Delta kind,
                  bool is_exact) {
  constexpr float kEps = 1e-5f;
  TestNumbers numbers(42);
  const int64_t count = shape.rows * shape.cols;
  const auto make = [&] { return is_exact ? numbers.Integers(count, 5) : numbers.Normals(count); };
  std::vector<float> x = make();
  const bool has_delta = kind != Delta::kNone;
  if (!has_delta && shape.rows > 1) std::fill(x.end() - shape.cols, x.end(), 0.0f);
  const std::vector<float> before = x;
  const ElementType delta_type = kind == Delta::kBF16 ? ElementType::kBF16 : ElementType::kF32;
  const RowInput delta = has_delta ? Input(memory, make(), delta_type) : RowInput{};
  std::vector<float> weight(static_cast<size_t>(shape.cols));
  for (float& value : weight) value = numbers.Uniform(0.5f, 1.5f);
  const float* device_weight = memory.In(weight);

  ExactRows exact{shape.rows, shape.cols, {}, {}};
  for (int64_t row = 0; row < shape.rows; ++row) {
    double squares = 0;
    for (int64_t col = 0; col < shape.cols; ++col) {
      const auto i = static_cast<size_t>(row * shape.cols + col);
      if (has_delta) x[i] += delta.values[i];
      squares += static_cast<double>(x[i]) * x[i];
    }
    const double factor = 1 / std::sqrt(squares / static_cast<double>(shape.cols) + kEps);
    // The error bound includes these roundings: the sum of squares (exact for integers), its mean,
    // eps, the root and its inverse, two products.
    const double roundings = (is_exact ? 0 : static_cast<double>(shape.cols) / 2) + kMathUnits + 5;
    for (int64_t col = 0; col < shape.cols; ++col) {
      const auto i = static_cast<size_t>(row * shape.cols + col);
      const double value = weight[static_cast<size_t>(col)] * (x[i] * factor);
      exact.values.push_back(value);
      exact.errors.push_back(std::abs(value) * Gamma(roundings));
    }
  }
  // Outputs of the last launch with all rows.
  float *residual = nullptr, *out_f32 = nullptr;
  const std::vector<float> f32 = CompareRows(
      memory, comparison, exact,
      [&](int64_t first, int64_t rows, const RowsOut& out) {
        float* const all = memory.InOut(before);
        float* const copy = has_delta ? memory.Out<float>(rows * shape.cols) : nullptr;
        if (all == nullptr) return;
        const int64_t begin = first * shape.cols;
        memory.Launch(&DeviceKernels::rms_norm, {all + begin, delta.From(begin), delta_type,
                                                 device_weight, kEps, rows, shape.cols, out, copy});
        if (rows == shape.rows) residual = all, out_f32 = copy;
      },
      /*packs=*/true);
  comparison.SetSubject("sums");
  const auto sums = memory.Read<float>(residual, count);
  for (size_t i = 0; i < sums.size(); ++i) comparison.AddF32(sums[i], x[i], 0);
  if (!has_delta) return;
  comparison.SetSubject("f32 copy");
  const auto copies = memory.Read<float>(out_f32, count);
  for (size_t i = 0; i < copies.size(); ++i) comparison.AddF32(copies[i], f32[i], 0);
}

void CheckSiluMul(CaseMemory& memory, Comparison& comparison, const RowShape& shape,
                  ElementType x_type) {
  TestNumbers numbers(43);
  std::vector<float> values = numbers.Normals(2 * shape.rows * shape.cols);
  for (float& value : values) value *= 4;
  // Inputs for which exp becomes 0 and infinite, and a zero.
  if (shape.cols > 10) values[1] = 200, values[2] = -200, values[3] = 0;
  const RowInput x = Input(memory, std::move(values), x_type);
  ExactRows exact{shape.rows, shape.cols, {}, {}};
  for (int64_t row = 0; row < shape.rows; ++row) {
    for (int64_t col = 0; col < shape.cols; ++col) {
      const auto gate = static_cast<size_t>(row * 2 * shape.cols + col);
      const double z = x.values[gate], up = x.values[gate + static_cast<size_t>(shape.cols)];
      const double value = z / (1 + std::exp(-z)) * up;
      exact.values.push_back(value);
      // The error bound includes these roundings: exp, the sum, the division, the product.
      exact.errors.push_back(std::abs(value) * Gamma(kMathUnits + 4));
    }
  }
  CompareRows(
      memory, comparison, exact,
      [&](int64_t first, int64_t rows, const RowsOut& out) {
        memory.Launch(&DeviceKernels::silu_mul,
                      {x.From(first * 2 * shape.cols), x_type, rows, shape.cols, out});
      },
      /*packs=*/true);
}

// Checks the activations of image encoders: z * sigmoid(c z) with c = 1 or 1.702, and GELU with
// tanh. Each is checked with and without multiplication by the second half of a row.
void CheckActivations(CaseMemory& memory, Comparison& comparison, const RowShape& shape,
                      bool is_plain) {
  TestNumbers numbers(54);
  const int64_t width = (is_plain ? 1 : 2) * shape.cols;
  std::vector<float> values = numbers.Normals(shape.rows * width);
  for (float& value : values) value *= 3;
  const RowInput x = Input(memory, std::move(values), ElementType::kBF16);
  for (const auto& [gelu, quick] : {std::pair{false, false}, {true, false}, {false, true}}) {
    comparison.SetSubject(gelu ? "gelu" : quick ? "quick gelu" : "silu");
    ExactRows exact{shape.rows, shape.cols, {}, {}};
    for (int64_t row = 0; row < shape.rows; ++row) {
      for (int64_t col = 0; col < shape.cols; ++col) {
        const auto at = static_cast<size_t>(row * width + col);
        const double z = x.values[at];
        const double exponent = gelu    ? z * (1.5957691216 + 0.0713548163 * z * z)
                                : quick ? 1.702 * z
                                        : z;
        const double up = is_plain ? 1 : x.values[at + static_cast<size_t>(shape.cols)];
        const double value = z / (1 + std::exp(-exponent)) * up;
        exact.values.push_back(value);
        // The error bound includes these roundings: up to four in the exponent, exp, the sum, the
        // division, the product.
        exact.errors.push_back(std::abs(value) * Gamma(kMathUnits + 4 + 4 * std::abs(exponent)));
      }
    }
    CompareRows(memory, comparison, exact, [&](int64_t first, int64_t rows, const RowsOut& out) {
      memory.Launch(&DeviceKernels::silu_mul, {.x = x.From(first * width),
                                               .x_type = ElementType::kBF16,
                                               .rows = rows,
                                               .width = shape.cols,
                                               .out = out,
                                               .gelu = gelu,
                                               .plain = is_plain,
                                               .quick_gelu = quick});
    });
  }
}

// Checks max(factor * x, 0)^2, with and without multiplication by the second half of a row.
void CheckRelu2(CaseMemory& memory, Comparison& comparison, const RowShape& shape,
                ElementType x_type, bool is_plain) {
  constexpr float kGateFactor = 0.7f;
  TestNumbers numbers(45);
  const int64_t width = (is_plain ? 1 : 2) * shape.cols;
  const RowInput x = Input(memory, numbers.Normals(shape.rows * width), x_type);
  ExactRows exact{shape.rows, shape.cols, {}, {}};
  for (int64_t row = 0; row < shape.rows; ++row) {
    for (int64_t col = 0; col < shape.cols; ++col) {
      const auto at = static_cast<size_t>(row * width + col);
      const double z = std::max(0.0, kGateFactor * double{x.values[at]});
      const double value = z * z * (is_plain ? 1 : x.values[at + static_cast<size_t>(shape.cols)]);
      exact.values.push_back(value);
      exact.errors.push_back(std::abs(value) * Gamma(is_plain ? 3 : 4));
    }
  }
  CompareRows(memory, comparison, exact, [&](int64_t first, int64_t rows, const RowsOut& out) {
    memory.Launch(&DeviceKernels::silu_mul, {.x = x.From(first * width),
                                             .x_type = x_type,
                                             .rows = rows,
                                             .width = shape.cols,
                                             .out = out,
                                             .relu2 = true,
                                             .plain = is_plain,
                                             .gate_factor = kGateFactor});
  });
}

void CompareConverted(CaseMemory& memory, Comparison& comparison, const RowShape& shape,
                      std::vector<float> values, ElementType x_type) {
  const RowInput x = Input(memory, std::move(values), x_type);
  ExactRows exact{shape.rows, shape.cols, {x.values.begin(), x.values.end()}, {}};
  exact.errors.resize(exact.values.size(), 0);
  CompareRows(
      memory, comparison, exact,
      [&](int64_t first, int64_t rows, const RowsOut& out) {
        memory.Launch(&DeviceKernels::convert_rows,
                      {x.From(first * shape.cols), x_type, rows, shape.cols, out});
      },
      /*packs=*/true);
}

// Includes a row of zeros, and numbers larger than the largest code.
void CheckConvertRows(CaseMemory& memory, Comparison& comparison, const RowShape& shape,
                      ElementType x_type) {
  TestNumbers numbers(44);
  std::vector<float> values = numbers.Normals(shape.rows * shape.cols);
  for (float& value : values) value *= 5;
  values.front() = 1e30f;
  values.back() = 1e4f;
  if (shape.rows > 2) std::fill_n(values.begin() + shape.cols, shape.cols, 0.0f);
  CompareConverted(memory, comparison, shape, std::move(values), x_type);
}

// A row with a NaN or infinite number must not be converted to a row of finite numbers.
void CheckNotFinite(CaseMemory& memory, Comparison& comparison) {
  std::vector<float> values(32, 1.0f);
  values[3] = std::numeric_limits<float>::quiet_NaN();
  values[16 + 5] = -std::numeric_limits<float>::infinity();
  CompareConverted(memory, comparison, {2, 16}, std::move(values), ElementType::kF32);
}

// Checks addresses that do not allow wide loads and stores.
void CheckUnaligned(CaseMemory& memory, Comparison& comparison) {
  constexpr int64_t kRows = 3, kCols = 64;
  const std::vector<float> x = TestNumbers(48).Normals(kRows * kCols + 1);
  const float* device_x = memory.In(x);
  uint16_t* out = memory.Out<uint16_t>(kRows * kCols + 1);
  if (!memory.ok()) return;
  memory.Launch(&DeviceKernels::convert_rows, {device_x + 1,
                                               ElementType::kF32,
                                               kRows,
                                               kCols,
                                               {.data = out + 1, .type = ElementType::kBF16}});
  const auto got = memory.Read(out, kRows * kCols + 1);
  comparison.AddEqual(got[0], 0xFFFF);
  for (size_t i = 1; i < got.size(); ++i) comparison.AddEqual(got[i], ToBFloat16(x[i]).bits);
}

// Checks rows that are dense (0), or `stride` bytes apart.
void CheckTakeRows(CaseMemory& memory, Comparison& comparison, int64_t row_bytes,
                   int64_t stride = 0) {
  constexpr int64_t kFrom = 50, kRows = 9;
  TestNumbers numbers(45);
  const int64_t step = stride == 0 ? row_bytes : stride;
  std::vector<uint8_t> in(static_cast<size_t>(kFrom * step));
  for (uint8_t& byte : in) byte = static_cast<uint8_t>(numbers.Bits());
  std::vector<int32_t> indices(kRows);
  for (int32_t& index : indices) index = static_cast<int32_t>(numbers.Integer(0, kFrom - 1));
  indices[0] = kFrom - 1;
  indices[2] = indices[1];
  uint8_t* out = memory.Out<uint8_t>(kRows * row_bytes);
  memory.Launch(&DeviceKernels::take_rows,
                {memory.In(in), memory.In(indices), kRows, row_bytes, out, stride});
  const auto got = memory.Read(out, kRows * row_bytes);
  for (size_t i = 0; i < got.size(); ++i) {
    const int64_t row = indices[i / static_cast<size_t>(row_bytes)];
    const auto from = static_cast<size_t>(row * step) + i % static_cast<size_t>(row_bytes);
    comparison.AddEqual(got[i], in[from]);
  }
}

void CheckTakeColumns(CaseMemory& memory, Comparison& comparison, int64_t cols) {
  constexpr int64_t kRows = 3;
  TestNumbers numbers(46);
  std::vector<uint16_t> in(static_cast<size_t>(kRows * cols));
  for (uint16_t& number : in) number = static_cast<uint16_t>(numbers.Bits());
  std::vector<int32_t> indices(static_cast<size_t>(cols));
  for (int32_t& index : indices) index = static_cast<int32_t>(numbers.Integer(0, cols - 1));
  indices.front() = static_cast<int32_t>(cols - 1);
  uint16_t* out = memory.Out<uint16_t>(kRows * cols);
  memory.Launch(&DeviceKernels::take_columns,
                {memory.In(in), memory.In(indices), kRows, cols, out});
  const auto got = memory.Read(out, kRows * cols);
  for (size_t i = 0; i < got.size(); ++i) {
    const size_t row = i / indices.size();
    const auto from = static_cast<size_t>(indices[i % indices.size()]);
    comparison.AddEqual(got[i], in[row * indices.size() + from]);
  }
}

void CheckPlaceRows(CaseMemory& memory, Comparison& comparison, int64_t cols, bool adds) {
  constexpr int64_t kValues = 20, kRows = 9;
  const int64_t stride = 3 * cols;
  TestNumbers numbers(49);
  const std::vector<float> values = numbers.Normals(kValues * stride);
  std::vector<float> x = numbers.Normals(kRows * cols);
  const std::vector<int32_t> places = {19, 0, 19, 7}, rows = {1, 2, 5, 8};
  float* const on_device = memory.InOut(x);
  memory.Launch(&DeviceKernels::place_rows, {memory.In(values) + cols, stride, memory.In(places),
                                             memory.In(rows), 4, cols, on_device, adds});
  for (size_t i = 0; i < rows.size(); ++i) {
    for (int64_t k = 0; k < cols; ++k) {
      const float value = values[static_cast<size_t>(places[i] * stride + cols + k)];
      float& to = x[static_cast<size_t>(rows[i] * cols + k)];
      to = adds ? to + value : value;
    }
  }
  const auto got = memory.Read(on_device, kRows * cols);
  for (size_t i = 0; i < got.size(); ++i) comparison.AddF32(got[i], x[i], 0);
}

void CheckStandardize(CaseMemory& memory, Comparison& comparison, int64_t cols, bool has_bias) {
  constexpr int64_t kRows = 3;
  TestNumbers numbers(50);
  const std::vector<float> x = numbers.Normals(kRows * cols), bias = numbers.Normals(cols);
  const std::vector<float> factor = numbers.Normals(cols);
  float* const on_device = memory.InOut(x);
  memory.Launch(&DeviceKernels::standardize,
                {on_device, has_bias ? memory.In(bias) : nullptr, memory.In(factor), kRows, cols});
  const auto got = memory.Read(on_device, kRows * cols);
  for (size_t i = 0; i < got.size(); ++i) {
    const size_t col = i % static_cast<size_t>(cols);
    comparison.AddF32(got[i], has_bias ? (x[i] - bias[col]) * factor[col] : x[i] * factor[col], 0);
  }
}

void CheckMergePatches(CaseMemory& memory, Comparison& comparison, int64_t group, int64_t cols,
                       bool by_number) {
  constexpr int64_t kRows = 3;
  TestNumbers numbers(53);
  const std::vector<float> x = numbers.Normals(kRows * group * cols);
  const int64_t width = by_number ? group * cols : cols;
  float* const out = memory.Out<float>(kRows * width);
  memory.Launch(&DeviceKernels::merge_patches, {memory.In(x), kRows, group, cols, out, by_number});
  const auto got = memory.Read(out, kRows * width);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      float sum = 0;
      for (int64_t i = 0; i < group; ++i) {
        const float number = x[static_cast<size_t>((row * group + i) * cols + col)];
        sum += number;
        if (by_number)
          comparison.AddF32(got[static_cast<size_t>(row * width + col * group + i)], number, 0);
      }
      if (by_number) continue;
      comparison.AddF32(got[static_cast<size_t>(row * width + col)],
                        sum / static_cast<float>(group), 0);
    }
  }
}

void CheckJoinColumns(CaseMemory& memory, Comparison& comparison,
                      const std::vector<int64_t>& widths) {
  constexpr int64_t kRows = 3;
  device::JoinColumnsArgs args = {};
  args.rows = kRows;
  args.num_pieces = static_cast<int>(widths.size());
  int64_t width = 0;
  for (size_t i = 0; i < widths.size(); ++i) args.ends[i] = width += widths[i];
  std::vector<uint8_t> in(static_cast<size_t>(kRows * width));
  TestNumbers numbers(47);
  for (uint8_t& byte : in) byte = static_cast<uint8_t>(numbers.Bits());
  args.in = memory.In(in);
  uint8_t* out = memory.Out<uint8_t>(kRows * width);
  args.out = out;
  memory.Launch(&DeviceKernels::join_columns, args);
  const auto got = memory.Read(out, kRows * width);
  auto from = in.begin();
  int64_t begin = 0;
  for (const int64_t piece : widths) {
    for (int64_t i = 0; i < kRows * piece; ++i)
      comparison.AddEqual(got[static_cast<size_t>(i / piece * width + begin + i % piece)], *from++);
    begin += piece;
  }
}

}  // namespace

void CheckRows(CheckRun& run) {
  const std::vector<RowShape> shapes = Shapes(run);
  for (const RowShape& shape : shapes) {
    run.Case("embedding", ShapeText(shape, "bf16"),
             [&](CaseMemory& memory, Comparison& comparison) {
               CheckEmbedding(memory, comparison, shape);
             });
  }
  for (const RowShape& shape : shapes) {
    for (const Delta delta : {Delta::kNone, Delta::kF32, Delta::kBF16}) {
      for (const bool is_exact : {true, false}) {
        const std::string words = fmt::format("{}, {}", kDeltaNames[static_cast<int>(delta)],
                                              is_exact ? "integers" : "normal");
        run.Case("rms_norm", ShapeText(shape, words.c_str()),
                 [&](CaseMemory& memory, Comparison& comparison) {
                   CheckRmsNorm(memory, comparison, shape, delta, is_exact);
                 });
      }
    }
  }
  for (const RowShape& shape : shapes) {
    for (const ElementType x_type : {ElementType::kF32, ElementType::kBF16}) {
      const char* words = x_type == ElementType::kF32 ? "f32" : "bf16";
      run.Case("silu_mul", ShapeText(shape, words),
               [&](CaseMemory& memory, Comparison& comparison) {
                 CheckSiluMul(memory, comparison, shape, x_type);
               });
      if (x_type == ElementType::kBF16) {
        run.Case("silu_mul", ShapeText(shape, "activations of towers"),
                 [&](CaseMemory& memory, Comparison& comparison) {
                   for (const bool is_plain : {true, false})
                     CheckActivations(memory, comparison, shape, is_plain);
                 });
      }
      run.Case("relu2", ShapeText(shape, words), [&](CaseMemory& memory, Comparison& comparison) {
        for (const bool is_plain : {true, false})
          CheckRelu2(memory, comparison, shape, x_type, is_plain);
      });
      run.Case("convert_rows", ShapeText(shape, words),
               [&](CaseMemory& memory, Comparison& comparison) {
                 CheckConvertRows(memory, comparison, shape, x_type);
               });
    }
  }
  run.Case("convert_rows", "2 x 16, NaN and infinity", CheckNotFinite);
  run.Case("convert_rows", "3 x 64, not aligned", CheckUnaligned);
  CheckNvF4Rows(run);
  CheckMxF4Rows(run);
  CheckEncoderRows(run);
  CheckLayerRows(run);
  for (const int64_t row_bytes : {16, 64, 80, 2048, 4800}) {
    run.Case("take_rows", fmt::format("9 rows of {} bytes", row_bytes),
             [&](CaseMemory& memory, Comparison& comparison) {
               CheckTakeRows(memory, comparison, row_bytes);
             });
  }
  run.Case("take_rows", "9 rows of 80 bytes, 208 apart",
           [](CaseMemory& memory, Comparison& comparison) {
             CheckTakeRows(memory, comparison, 80, 208);
           });
  for (const int64_t cols : {4, 64, 520, 2048}) {
    run.Case("place_rows", fmt::format("4 x {}", cols),
             [&](CaseMemory& memory, Comparison& comparison) {
               for (const bool adds : {false, true}) CheckPlaceRows(memory, comparison, cols, adds);
             });
  }
  for (const int64_t cols : {4, 64, 520, 1152}) {
    run.Case("standardize", fmt::format("3 x {}", cols),
             [&](CaseMemory& memory, Comparison& comparison) {
               for (const bool has_bias : {false, true})
                 CheckStandardize(memory, comparison, cols, has_bias);
             });
  }
  for (const auto& [group, cols] : {std::pair<int64_t, int64_t>{4, 5}, {9, 64}, {16, 1152}}) {
    run.Case("merge_patches", fmt::format("3 x {} x {}", group, cols),
             [&](CaseMemory& memory, Comparison& comparison) {
               for (const bool by_number : {false, true})
                 CheckMergePatches(memory, comparison, group, cols, by_number);
             });
  }
  // Pieces whose sizes are multiples of 16, 8, 4 and 2 bytes, pieces of odd sizes, and empty
  // pieces.
  for (const std::vector<int64_t>& widths :
       {std::vector<int64_t>{64, 4160}, {24, 8, 16}, {0, 4, 12, 0}, {6, 2}, {3, 1, 0, 5}, {300}}) {
    run.Case("join_columns", fmt::format("3 x [{}] bytes", fmt::join(widths, ", ")),
             [&](CaseMemory& memory, Comparison& comparison) {
               CheckJoinColumns(memory, comparison, widths);
             });
  }
  CheckExchanges(run);
  for (const int64_t cols : {8, 32, 1000, 1032, 4160}) {
    run.Case("take_columns", fmt::format("3 x {}", cols),
             [&](CaseMemory& memory, Comparison& comparison) {
               CheckTakeColumns(memory, comparison, cols);
             });
  }
}

}  // namespace sluice::checks
