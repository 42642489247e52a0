// Matrix products: y = x W^T in every format of weights, with integers whose sums are exact and
// with free numbers; and the two helpers of library products.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "kernels/cuda/checks/check_run.h"
#include "kernels/cuda/checks/products.h"
#include "kernels/cuda/checks/test_numbers.h"
#include "kernels/cuda/checks/test_weights.h"
#include "kernels/cuda/checks/tolerances.h"
#include "kernels/cuda/linear_shapes.h"

namespace sluice::checks {
namespace {

struct ProductShape {
  const char* name;
  int64_t m, n, k;
};

// The layers of models, small enough for the whole list to take seconds.
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

Status CheckProduct(CheckRun& run, CaseMemory& memory, Comparison& comparison,
                    const ProductShape& shape, const WeightFormat& format, NumberKind kind,
                    ElementType y_type, bool has_bias) {
  const TestWeights weights(format, kind, 1, shape.n, shape.k);
  const TestInputs x = MakeInputs(memory, format, kind, shape.m, shape.k);
  ProductOutput y(memory, y_type, shape.m, shape.n, /*stride=*/shape.n + 8);
  std::vector<float> bias;
  TestNumbers numbers(63);
  if (has_bias) bias = numbers.Integers(shape.n, 9);
  device::LinearArgs args{};
  args.w = weights.Upload(memory);
  args.x = x.data;
  args.x_type = x.type;
  args.x_scales = x.device_scales;
  args.m = shape.m;
  args.y = y.data();
  args.y_type = y_type;
  args.y_stride = y.stride();
  args.bias = has_bias ? memory.In(bias) : nullptr;
  args.scratch = memory.Out<uint8_t>(device::LinearScratchBytes(args.w, shape.m) + 256);
  if (!memory.ok()) return memory.status();
  RETURN_IF_ERROR(device::CheckLinear(args));
  run.device().kernels().linear(run.device().handle(), args);
  y.Read();
  // A row alone is bit for bit what it is among others.
  const int64_t alone = shape.m / 2;
  ProductOutput single(memory, y_type, 1, shape.n, y.stride());
  device::LinearArgs one = args;
  one.m = 1;
  one.x = static_cast<const uint8_t*>(args.x) +
          alone * shape.k * (x.type == ElementType::kF8E4M3 ? 1 : 2);
  if (args.x_scales != nullptr) one.x_scales = args.x_scales + alone;
  one.y = single.data();
  if (!memory.ok()) return memory.status();
  run.device().kernels().linear(run.device().handle(), one);
  single.Read();
  if (!memory.ok()) return memory.status();

  const ProductRows rows{weights, 0, x, shape.k, bias, kind, format.e4m3_inputs};
  const SampledPlaces places(shape.m, shape.n);
  for (const int64_t n : places.columns()) {
    rows.ForColumn(run.device(), n, places.rows(), [&](int64_t m, double expected, double error) {
      y.Compare(m, n, expected, error, comparison);
    });
    comparison.AddEqual(single.BitsAt(0, n), y.BitsAt(alone, n));
  }
  y.CompareGaps(comparison);
  return {};
}

Status CheckExpandWeights(CheckRun& run, CaseMemory& memory, Comparison& comparison,
                          const WeightFormat& format, int64_t n, int64_t k) {
  const TestWeights weights(format, NumberKind::kFree, 1, n, k);
  // Chunks begin at multiples of 128 rows.
  const int64_t first_row = n > 128 ? 128 : 0, rows = n - first_row;
  uint16_t* out = memory.Out<uint16_t>(rows * k);
  const device::Weights w = weights.Upload(memory);
  if (!memory.ok()) return memory.status();
  run.device().kernels().expand_weights(run.device().handle(), {w, first_row, rows, out});
  const auto got = memory.Read(out, rows * k);
  if (!memory.ok()) return memory.status();
  std::vector<double> values;
  for (int64_t row = 0; row < rows; ++row) {
    weights.DecodeRow(0, first_row + row, values);
    const double scale = weights.RowScale(0, first_row + row);
    for (int64_t i = 0; i < k; ++i) {
      const double value = values[static_cast<size_t>(i)] * scale;
      // The products of code, group's scale and row's scale.
      comparison.AddBf16(got[static_cast<size_t>(row * k + i)], value, std::abs(value) * Gamma(2));
    }
  }
  return {};
}

Status CheckScaleResults(CheckRun& run, CaseMemory& memory, Comparison& comparison,
                         ElementType y_type, bool has_scales, bool has_bias) {
  constexpr int64_t kM = 5, kN = 300, kStride = 304;
  TestNumbers numbers(64);
  const std::vector<float> row_scales = numbers.Normals(kN), x_scales = numbers.Normals(kM);
  const std::vector<float> bias = numbers.Normals(kN);
  std::vector<float> values = numbers.Normals(kM * kStride);
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
  args.n = kN;
  args.y_stride = kStride;
  if (has_scales) {
    args.row_scales = memory.In(row_scales);
    args.x_scales = memory.In(x_scales);
  }
  if (has_bias) args.bias = memory.In(bias);
  if (!memory.ok()) return memory.status();
  run.device().kernels().scale_results(run.device().handle(), args);
  std::vector<float> got_f32;
  std::vector<uint16_t> got_bf16;
  if (y_type == ElementType::kBF16)
    got_bf16 = memory.Read(static_cast<const uint16_t*>(args.y), kM * kStride);
  else
    got_f32 = memory.Read(static_cast<const float*>(args.y), kM * kStride);
  if (!memory.ok()) return memory.status();
  for (int64_t m = 0; m < kM; ++m) {
    for (int64_t n = 0; n < kStride; ++n) {
      const auto i = static_cast<size_t>(m * kStride + n);
      double expected = values[i], size = std::abs(expected);
      if (n < kN) {
        if (has_scales)
          expected *= static_cast<double>(row_scales[static_cast<size_t>(n)]) *
                      x_scales[static_cast<size_t>(m)];
        size = std::abs(expected);
        if (has_bias) {
          expected += bias[static_cast<size_t>(n)];
          size += std::abs(bias[static_cast<size_t>(n)]);
        }
      }
      const double error = n < kN ? size * Gamma(3) : 0;
      if (y_type == ElementType::kBF16)
        comparison.AddBf16(got_bf16[i], expected, error);
      else
        comparison.AddF32(got_f32[i], expected, error);
    }
  }
  return {};
}

void CheckShapes(CheckRun& run, std::span<const ProductShape> shapes, bool is_large) {
  for (const ProductShape& shape : shapes) {
    for (const WeightFormat& format : WeightFormats()) {
      const auto turn =
          static_cast<int>((&shape - shapes.data()) + (&format - WeightFormats().data()));
      if (format.e4m3_inputs && !run.device().has_e4m3_products()) continue;
      // Large matrices take turns with the formats and the kinds of numbers.
      if (is_large && turn % 2 != 0) continue;
      if (shape.k * 4 % 128 != 0) continue;
      for (const NumberKind kind : {NumberKind::kIntegers, NumberKind::kFree}) {
        if (is_large && (turn / 2 % 2 == 0) != (kind == NumberKind::kIntegers)) continue;
        const bool is_bf16 = (turn + (kind == NumberKind::kFree)) % 2 == 0;
        const bool has_bias = turn % 3 == 0;
        std::string text =
            fmt::format("{} x {} x {}, {}, {}{}{}", shape.m, shape.n, shape.k, format.name,
                        NumberKindName(kind), is_bf16 ? ", to bf16" : "", has_bias ? ", bias" : "");
        run.Case(is_large ? fmt::format("linear {}", shape.name) : std::string("linear"), text,
                 [&](CaseMemory& memory, Comparison& comparison) {
                   return CheckProduct(run, memory, comparison, shape, format, kind,
                                       is_bf16 ? ElementType::kBF16 : ElementType::kF32, has_bias);
                 });
      }
    }
  }
}

}  // namespace

void CheckLinear(CheckRun& run) {
  if (!run.device().has_e4m3_products())
    run.Skip("linear", "fp8 x fp8", "needs compute capability 8.9");
  CheckShapes(run, kSmall, /*is_large=*/false);
  if (run.with_large_shapes()) CheckShapes(run, kLarge, /*is_large=*/true);
  for (const WeightFormat& format : WeightFormats()) {
    if (format.e4m3_inputs) continue;
    run.Case("expand_weights", fmt::format("rows 128 to 199 of 256, {}", format.name),
             [&](CaseMemory& memory, Comparison& comparison) {
               return CheckExpandWeights(run, memory, comparison, format, 200, 256);
             });
  }
  for (const ElementType y_type : {ElementType::kF32, ElementType::kBF16}) {
    for (const int what : {1, 2, 3}) {
      run.Case("scale_results",
               fmt::format("5 x 300, {}{}{}", y_type == ElementType::kF32 ? "f32" : "bf16",
                           (what & 1) != 0 ? ", scales" : "", (what & 2) != 0 ? ", bias" : ""),
               [&](CaseMemory& memory, Comparison& comparison) {
                 return CheckScaleResults(run, memory, comparison, y_type, (what & 1) != 0,
                                          (what & 2) != 0);
               });
    }
  }
}

}  // namespace sluice::checks
