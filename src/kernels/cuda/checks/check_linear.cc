// Checks matrix products y = x W^T in every weight format, with integers whose sums are exact and
// with arbitrary numbers. Also checks the two helper kernels of library products.
#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "kernels/cuda/checks/check_run.h"
#include "kernels/cuda/checks/products.h"
#include "kernels/cuda/checks/test_numbers.h"
#include "kernels/cuda/checks/test_weights.h"
#include "kernels/cuda/checks/tolerances.h"
#include "kernels/cuda/linear_plan.h"

namespace sluice::checks {
namespace {

using device::DeviceKernels;

struct ProductShape {
  const char* name;
  int64_t m, n, k;
};

// Small shapes, and layers of models (kLarge). They are few enough that the whole list takes
// seconds.
constexpr ProductShape kSmall[] = {
    {"", 1, 64, 128}, {"", 5, 96, 256}, {"", 17, 130, 384}, {"", 33, 72, 1152}, {"", 70, 192, 256}};
constexpr ProductShape kLarge[] = {
    {"Llama 3 8B qkv", 1, 6144, 4096},
    {"Llama 3 8B down", 16, 4096, 14336},
    {"Llama 3 70B qkv", 8, 10240, 8192},
    {"Llama 3 70B o", 64, 8192, 8192},
    {"Llama 3 70B gate, up", 1, 57344, 8192},
    {"Llama 3 70B down", 33, 8192, 28672},
    {"Llama 3 70B o", 1024, 8192, 8192},
    {"Qwen3 8B gate, up", 128, 24576, 4096},
    {"Scout qkv", 3, 7168, 5120},
};

struct ProductCase {
  ProductShape shape;
  const WeightFormat& format;
  NumberKind kind;
  ElementType y_type = ElementType::kF32;
  bool has_bias = false;
  int64_t gap = 8;  // elements between the rows of y
  LinearKernel kernel = &DeviceKernels::linear;
};

void CheckProduct(CaseMemory& memory, Comparison& comparison, const ProductCase& test) {
  const ProductShape& shape = test.shape;
  const TestWeights weights(test.format, test.kind, 1, shape.n, shape.k);
  const TestInputs x = MakeInputs(memory, test.format, test.kind, shape.m, shape.k);
  std::vector<float> bias;
  if (test.has_bias) bias = TestNumbers(63).Integers(shape.n, 9);
  device::LinearArgs args = LinearArgsOf(weights.Upload(memory), x, 0, shape.m);
  args.bias = test.has_bias ? memory.In(bias) : nullptr;
  const ProductOutput y = Multiply(memory, args, test.y_type, shape.n + test.gap, test.kernel);
  // A row computed alone must have the same bits as when it is computed with other rows.
  const int64_t alone = shape.m / 2;
  device::LinearArgs one = LinearArgsOf(args.w, x, alone, 1);
  one.bias = args.bias;
  const ProductOutput single = Multiply(memory, one, test.y_type, y.stride(), test.kernel);

  const ProductRows rows{weights,
                         0,
                         x,
                         shape.k,
                         bias,
                         test.kind,
                         test.format.e4m3_inputs,
                         test.kernel == &DeviceKernels::linear_groups};
  const SampledPlaces places(shape.m, shape.n);
  for (const int64_t n : places.columns()) {
    rows.ForColumn(memory.device(), n, places.rows(),
                   [&](int64_t m, double expected, double error) {
                     y.Compare(m, n, expected, error, comparison);
                   });
    comparison.AddEqual(single.BitsAt(0, n), y.BitsAt(alone, n));
  }
  y.CompareGaps(comparison);
}

// Checks partial tiles of all sizes, and rows of W that end in the middle of a stage of shared
// memory. Cases with integers and with arbitrary numbers alternate.
void CheckEdges(CaseMemory& memory, Comparison& comparison, const WeightFormat& format) {
  int turn = 0;
  // The last k ends with 16 bytes that do not fill a unit of 32 columns, if the format allows that.
  for (const int64_t k : {32, 96, 160, 32 + 3 * 128 / device::LinearCodeBits(format.type)}) {
    for (const int64_t n : {1, 17, 130}) {
      for (const int64_t m : {1, 9, 33}) {
        const NumberKind kind = ++turn % 2 == 0 ? NumberKind::kIntegers : NumberKind::kFree;
        comparison.SetSubject(fmt::format("{} x {} x {}, {}", m, n, k, NumberKindName(kind)));
        CheckProduct(memory, comparison, {.shape = {"", m, n, k}, .format = format, .kind = kind});
      }
    }
  }
}

// Checks that a row's bits do not depend on the tile size, nor on how ranges of k are computed: in
// parallel (up to 64 rows) or in one block.
void CheckBatches(CaseMemory& memory, Comparison& comparison, const WeightFormat& format, int64_t n,
                  int64_t k, LinearKernel kernel = &DeviceKernels::linear) {
  constexpr int64_t kRows = 200;
  const TestWeights weights(format, NumberKind::kFree, 1, n, k);
  const TestInputs x = MakeInputs(memory, format, NumberKind::kFree, kRows, k);
  const device::Weights w = weights.Upload(memory);
  const ProductOutput all =
      Multiply(memory, LinearArgsOf(w, x, 0, kRows), ElementType::kF32, n, kernel);
  for (const auto& [first, m] : {std::pair<int64_t, int64_t>{0, 1},
                                 {5, 1},
                                 {199, 1},
                                 {3, 16},
                                 {100, 20},
                                 {9, 40},
                                 {120, 70}}) {
    comparison.SetSubject(fmt::format("rows {} to {}", first, first + m - 1));
    const ProductOutput some =
        Multiply(memory, LinearArgsOf(w, x, first, m), ElementType::kF32, n, kernel);
    for (int64_t row = 0; row < m; ++row) {
      for (int64_t column = 0; column < n; ++column)
        comparison.AddEqual(some.BitsAt(row, column), all.BitsAt(first + row, column));
    }
  }
}

// Checks that sums over k for some rows of a matrix are split as for the whole matrix. `whole_n`
// has so many rows that its sums are not split, which changes the last bits of some results.
void CheckPartOfRows(CaseMemory& memory, Comparison& comparison, const WeightFormat& format,
                     LinearKernel kernel = &DeviceKernels::linear) {
  constexpr int64_t kM = 3, kN = 40, kK = 4096, kWhole = 57344;
  const TestWeights weights(format, NumberKind::kFree, 1, kN, kK);
  const TestInputs x = MakeInputs(memory, format, NumberKind::kFree, kM, kK);
  device::Weights w = weights.Upload(memory);
  const ProductOutput alone =
      Multiply(memory, LinearArgsOf(w, x, 0, kM), ElementType::kF32, kN, kernel);
  w.whole_n = kWhole;
  const ProductOutput part =
      Multiply(memory, LinearArgsOf(w, x, 0, kM), ElementType::kF32, kN, kernel);
  const ProductRows rows{weights,
                         0,
                         x,
                         kK,
                         {},
                         NumberKind::kFree,
                         format.e4m3_inputs,
                         kernel == &DeviceKernels::linear_groups};
  const SampledPlaces places(kM, kN);
  int64_t unlike = 0;
  for (const int64_t n : places.columns()) {
    rows.ForColumn(memory.device(), n, places.rows(),
                   [&](int64_t m, double expected, double error) {
                     part.Compare(m, n, expected, error, comparison);
                     unlike += part.BitsAt(m, n) != alone.BitsAt(m, n);
                   });
  }
  comparison.AddEqual(unlike > 0, true);
}

// Checks that a NaN code or scale affects only its own output column.
void CheckNanWeights(CaseMemory& memory, Comparison& comparison, const WeightFormat& format,
                     LinearKernel kernel = &DeviceKernels::linear) {
  constexpr int64_t kM = 3, kN = 20, kK = 64;
  TestWeights weights(format, NumberKind::kFree, 1, kN, kK);
  weights.SetNan(7, 33);
  weights.SetNan(8, 50);
  const TestInputs x = MakeInputs(memory, format, NumberKind::kFree, kM, kK);
  const ProductOutput y = Multiply(memory, LinearArgsOf(weights.Upload(memory), x, 0, kM),
                                   ElementType::kF32, kN, kernel);
  for (int64_t m = 0; m < kM; ++m) {
    for (int64_t n = 0; n < kN; ++n) {
      const float value = std::bit_cast<float>(static_cast<uint32_t>(y.BitsAt(m, n)));
      comparison.AddEqual(std::isnan(value), n == 7 || n == 8);
    }
  }
}

struct ExpandedRows {
  int64_t n, k, first, rows;
};

void CheckExpandWeights(CaseMemory& memory, Comparison& comparison, const WeightFormat& format,
                        const ExpandedRows& shape, bool scales_rows) {
  const TestWeights weights(format, NumberKind::kFree, 1, shape.n, shape.k);
  uint16_t* out = memory.Out<uint16_t>(shape.rows * shape.k);
  device::Weights w = weights.Upload(memory);
  if (!scales_rows) w.row_scales = nullptr;
  memory.Launch(&DeviceKernels::expand_weights, {w, shape.first, shape.rows, out});
  const auto got = memory.Read(out, shape.rows * shape.k);
  // The products of code, group scale and row scale. Without a row scale they are exact in BF16,
  // except with block scales and for INT4.
  const bool is_exact = !scales_rows && format.group_type != device::GroupScales::kBlock &&
                        format.group_type != device::GroupScales::kWithZeros;
  std::vector<double> values;
  for (int64_t row = 0; row < shape.rows; ++row) {
    weights.DecodeRow(0, shape.first + row, values);
    const double scale = scales_rows ? weights.RowScale(0, shape.first + row) : 1;
    for (int64_t i = 0; i < shape.k; ++i) {
      const double value = values[static_cast<size_t>(i)] * scale;
      comparison.AddBf16(got[static_cast<size_t>(row * shape.k + i)], value,
                         is_exact ? 0 : std::abs(value) * Gamma(2));
    }
  }
}

// Kernels write rows of the first shape element by element, and rows of the second shape as whole
// vectors. They must not change the elements between n and stride.
struct ResultShape {
  int64_t n, stride;
};
constexpr ResultShape kResultShapes[] = {{300, 310}, {304, 312}};

// `which`: bit 0 for scales of the rows of W, bit 1 for scales of the rows of x, bit 2 for the
// bias.
void CheckScaleResults(CaseMemory& memory, Comparison& comparison, const ResultShape& shape,
                       ElementType y_type, int which) {
  constexpr int64_t kM = 5;
  const int64_t columns = shape.n, stride = shape.stride;
  TestNumbers numbers(64);
  const std::vector<float> row_scales = numbers.Normals(columns), x_scales = numbers.Normals(kM);
  const std::vector<float> bias = numbers.Normals(columns);
  std::vector<float> values = numbers.Normals(kM * stride);
  device::ScaleResultsArgs args{};
  if (y_type == ElementType::kBF16) {
    const std::vector<uint16_t> bits = ToBf16Bits(values);
    for (size_t i = 0; i < values.size(); ++i) values[i] = FromBf16Bits(bits[i]);
    args.y = memory.InOut(bits);
  } else {
    args.y = memory.InOut(values);
  }
  args.y_type = y_type;
  args.m = kM;
  args.n = columns;
  args.y_stride = stride;
  if ((which & 1) != 0) args.row_scales = memory.In(row_scales);
  if ((which & 2) != 0) args.x_scales = memory.In(x_scales);
  if ((which & 4) != 0) args.bias = memory.In(bias);
  memory.Launch(&DeviceKernels::scale_results, args);
  std::vector<float> got_f32;
  std::vector<uint16_t> got_bf16;
  if (y_type == ElementType::kBF16)
    got_bf16 = memory.Read(static_cast<const uint16_t*>(args.y), kM * stride);
  else
    got_f32 = memory.Read(static_cast<const float*>(args.y), kM * stride);
  for (int64_t m = 0; m < kM; ++m) {
    for (int64_t n = 0; n < stride; ++n) {
      const auto i = static_cast<size_t>(m * stride + n);
      double expected = values[i], error = 0;
      if (n < columns) {
        if ((which & 1) != 0) expected *= row_scales[static_cast<size_t>(n)];
        if ((which & 2) != 0) expected *= x_scales[static_cast<size_t>(m)];
        double size = std::abs(expected);
        if ((which & 4) != 0) {
          expected += bias[static_cast<size_t>(n)];
          size += std::abs(bias[static_cast<size_t>(n)]);
        }
        error = which == 0 ? 0 : size * Gamma(3);
      }
      if (y_type == ElementType::kBF16)
        comparison.AddBf16(got_bf16[i], expected, error);
      else
        comparison.AddF32(got_f32[i], expected, error);
    }
  }
}

void CheckShapes(CheckRun& run, std::span<const ProductShape> shapes, bool is_large) {
  for (const ProductShape& shape : shapes) {
    for (const WeightFormat& format : WeightFormats()) {
      const auto turn =
          static_cast<int>((&shape - shapes.data()) + (&format - WeightFormats().data()));
      if (format.e4m3_inputs && !run.device().has_e4m3_products()) continue;
      // For large matrices, formats and kinds of numbers are used in turn.
      if (is_large && turn % 2 != 0) continue;
      for (const NumberKind kind : {NumberKind::kIntegers, NumberKind::kFree}) {
        if (is_large && (turn / 2 % 2 == 0) != (kind == NumberKind::kIntegers)) continue;
        const bool is_bf16 = (turn + (kind == NumberKind::kFree)) % 2 == 0;
        const bool has_bias = turn % 3 == 0;
        std::string text =
            fmt::format("{} x {} x {}, {}, {}{}{}", shape.m, shape.n, shape.k, format.name,
                        NumberKindName(kind), is_bf16 ? ", to bf16" : "", has_bias ? ", bias" : "");
        run.Case(is_large ? fmt::format("linear {}", shape.name) : std::string("linear"), text,
                 [&](CaseMemory& memory, Comparison& comparison) {
                   CheckProduct(memory, comparison,
                                {shape, format, kind,
                                 is_bf16 ? ElementType::kBF16 : ElementType::kF32, has_bias});
                 });
      }
    }
  }
}

void CheckEdgesOf(CheckRun& run, const WeightFormat& format) {
  run.Case(
      "linear", fmt::format("36 shapes to 33 x 130 x 160, {}", format.name),
      [&](CaseMemory& memory, Comparison& comparison) { CheckEdges(memory, comparison, format); });
  for (const ElementType y_type : {ElementType::kF32, ElementType::kBF16}) {
    run.Case("linear",
             fmt::format("18 x 70 x 256, {}, stride 75, to {}, bias", format.name,
                         y_type == ElementType::kF32 ? "f32" : "bf16"),
             [&](CaseMemory& memory, Comparison& comparison) {
               CheckProduct(memory, comparison,
                            {{"", 18, 70, 256}, format, NumberKind::kFree, y_type, true, 5});
             });
  }
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{20, 4096}, {70, 96}}) {
    run.SlowCase("linear", fmt::format("200 x {} x {} in parts, {}", n, k, format.name),
                 [&](CaseMemory& memory, Comparison& comparison) {
                   CheckBatches(memory, comparison, format, n, k);
                 });
  }
  run.SlowCase("linear", fmt::format("3 x 40 x 4096, of 57344 rows, {}", format.name),
               [&](CaseMemory& memory, Comparison& comparison) {
                 CheckPartOfRows(memory, comparison, format);
               });
  if (format.type != ElementType::kI8) {
    run.Case("linear", fmt::format("3 x 20 x 64, NaN among the weights, {}", format.name),
             [&](CaseMemory& memory, Comparison& comparison) {
               CheckNanWeights(memory, comparison, format);
             });
  }
}

// Shapes of the products of warpgroups: tiles of 16, 32 and 64 rows, several of them, tiles beyond
// W, x and k, more stages than the ring has, and several ranges of k, in blocks of their own and in
// one block.
constexpr ProductShape kGroupShapes[] = {
    {"", 1, 128, 128},  {"", 5, 96, 1040}, {"", 17, 130, 2064}, {"", 33, 72, 160},
    {"", 70, 192, 256}, {"", 64, 17, 32},  {"", 16, 256, 4096}, {"", 70, 40, 2064}};

void CheckGroups(CheckRun& run) {
  // The kernel for AMD's GPUs only fails, so it has no row.
  if (run.device().device().info().kind == DeviceKind::kHip) return;
  const char* const name = "linear_groups";
  for (const WeightFormat& format : WeightFormats()) {
    if (!format.e4m3_inputs) continue;
    if (!run.device().has_group_products()) {
      run.Skip(name, std::string(format.name), "needs an NVIDIA GPU of compute capability 9.0");
      continue;
    }
    int turn = 0;
    const auto check = [&](const ProductShape& shape, const char* layer) {
      for (const NumberKind kind : {NumberKind::kIntegers, NumberKind::kFree}) {
        const bool is_bf16 = ++turn % 4 < 2, has_bias = turn % 3 == 0;
        run.Case(
            fmt::format("{}{}", name, layer),
            fmt::format("{} x {} x {}, {}, {}{}{}", shape.m, shape.n, shape.k, format.name,
                        NumberKindName(kind), is_bf16 ? ", to bf16" : "", has_bias ? ", bias" : ""),
            [&](CaseMemory& memory, Comparison& comparison) {
              CheckProduct(memory, comparison,
                           {shape, format, kind, is_bf16 ? ElementType::kBF16 : ElementType::kF32,
                            has_bias, 8, &DeviceKernels::linear_groups});
            });
      }
    };
    for (const ProductShape& shape : kGroupShapes) check(shape, "");
    if (run.with_large_shapes()) {
      for (const ProductShape& shape : kLarge) {
        if (shape.m <= 128) check(shape, fmt::format(" {}", shape.name).c_str());
      }
    }
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{20, 4096}, {140, 96}}) {
      run.SlowCase(name, fmt::format("200 x {} x {} in parts, {}", n, k, format.name),
                   [&](CaseMemory& memory, Comparison& comparison) {
                     CheckBatches(memory, comparison, format, n, k, &DeviceKernels::linear_groups);
                   });
    }
    run.Case(name, fmt::format("3 x 40 x 4096, of 57344 rows, {}", format.name),
             [&](CaseMemory& memory, Comparison& comparison) {
               CheckPartOfRows(memory, comparison, format, &DeviceKernels::linear_groups);
             });
    run.Case(name, fmt::format("3 x 20 x 64, NaN among the weights, {}", format.name),
             [&](CaseMemory& memory, Comparison& comparison) {
               CheckNanWeights(memory, comparison, format, &DeviceKernels::linear_groups);
             });
  }
}

}  // namespace

void CheckLinear(CheckRun& run) {
  if (!run.device().has_e4m3_products())
    run.Skip("linear", "fp8 x fp8", "needs compute capability 8.9");
  CheckShapes(run, kSmall, /*is_large=*/false);
  if (run.with_large_shapes()) CheckShapes(run, kLarge, /*is_large=*/true);
  for (const WeightFormat& format : WeightFormats()) {
    if (format.e4m3_inputs && !run.device().has_e4m3_products()) continue;
    if (run.with_all_shapes()) CheckEdgesOf(run, format);
    if (format.e4m3_inputs || format.mxf4_inputs)
      continue;  // checked with the format that has the same weights and BF16 inputs
    for (const ExpandedRows& rows : {ExpandedRows{37, 160, 9, 20}, {200, 256, 128, 72}}) {
      for (const bool scales_rows : {true, false}) {
        run.Case("expand_weights",
                 fmt::format("rows {} to {} of {}, {}{}", rows.first, rows.first + rows.rows - 1,
                             rows.k, format.name, scales_rows ? "" : ", without scales of rows"),
                 [&](CaseMemory& memory, Comparison& comparison) {
                   CheckExpandWeights(memory, comparison, format, rows, scales_rows);
                 });
      }
    }
  }
  CheckGroups(run);
  for (const ResultShape& shape : kResultShapes) {
    for (const ElementType y_type : {ElementType::kF32, ElementType::kBF16}) {
      for (int which = 0; which < 8; ++which) {
        run.Case(
            "scale_results",
            fmt::format("5 x {}, {}{}{}{}", shape.n, y_type == ElementType::kF32 ? "f32" : "bf16",
                        (which & 1) != 0 ? ", scales of w" : "",
                        (which & 2) != 0 ? ", scales of x" : "", (which & 4) != 0 ? ", bias" : ""),
            [&](CaseMemory& memory, Comparison& comparison) {
              CheckScaleResults(memory, comparison, shape, y_type, which);
            });
      }
    }
  }
}

}  // namespace sluice::checks
