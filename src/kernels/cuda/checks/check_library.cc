#include "kernels/cuda/checks/check_library.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include <fmt/format.h>

#include "kernels/cuda/checks/products.h"
#include "kernels/cuda/checks/test_numbers.h"
#include "kernels/cuda/checks/test_weights.h"
#include "kernels/cuda/checks/tolerances.h"

namespace sluice::checks {
namespace {

using device::DeviceLinear;

struct LibraryShape {
  const char* name;
  int64_t m, n, k;
};
// More rows than own kernels take; numbers of rows and of outputs that tile nothing as well.
constexpr LibraryShape kLibraryShapes[] = {
    {"", 65, 130, 128}, {"", 70, 192, 256}, {"", 128, 48, 384}};
constexpr LibraryShape kLargeLibraryShapes[] = {{"Llama 3 70B qkv", 256, 10240, 8192},
                                                {"Llama 3 8B down", 1000, 4096, 14336}};

// Half a step of BF16's last place.
constexpr double kRoundingBf16 = 0x1p-8;

// How far a sum of the library may be off, as a share of its terms' magnitudes. Tensor cores may
// keep 13 bits behind the point while they add up E4M3 products, for 128 of them at most: then the
// library carries on in F32 (fast accumulation is not asked for).
double LibraryError(const DeviceUnderTest& device, const WeightFormat& format, int64_t k) {
  const double f32 = ProductError(device, static_cast<double>(k), /*is_e4m3=*/false);
  if (!format.e4m3_inputs || device.is_emulated()) return f32;
  constexpr double kShortSum = 128;
  return f32 + Gamma(kShortSum * (1 + 2.0 / 8) + 2, 0x1p-13);
}

struct LibraryCase {
  const LibraryShape& shape;
  const WeightFormat& format;
  NumberKind kind;
  ElementType y_type;
  bool has_bias;
};

// Compares sampled results with the exact ones. `is_nvf4`: NVFP4 weights met NVFP4 inputs as they
// are.
void CompareResults(const DeviceUnderTest& device, const LibraryCase& test, bool is_nvf4,
                    const TestWeights& weights, const TestInputs& x, const std::vector<float>& bias,
                    const ProductOutput& y, Comparison& comparison) {
  const auto& [shape, format, kind, y_type, has_bias] = test;
  const bool is_bf16 = y_type == ElementType::kBF16, is_free = kind == NumberKind::kFree;
  const bool is_expanded = format.type != ElementType::kBF16 && !format.e4m3_inputs && !is_nvf4;
  // Sums of integers, and products with powers of two, are exact.
  double relative = 0;
  if (is_free) {
    relative = LibraryError(device, format, shape.k) +
               Gamma(2.0 * static_cast<double>(weights.scaled_sums()) + 4);
    // Weights were rounded, but where each is a code times what stays exact.
    if (is_expanded && (is_bf16 || format.group_type == device::GroupScales::kBlock))
      relative += kRoundingBf16;
  }
  const SampledPlaces places(shape.m, shape.n);
  std::vector<double> w;
  for (const int64_t n : places.columns()) {
    weights.DecodeRow(0, n, w);
    for (const int64_t m : places.rows()) {
      double sum = 0, size = 0;
      for (int64_t i = 0; i < shape.k; ++i) {
        const double product =
            x.values[static_cast<size_t>(m * shape.k + i)] * w[static_cast<size_t>(i)];
        sum += product;
        size += std::abs(product);
      }
      const double scale =
          weights.RowScale(0, n) * (x.scales.empty() ? 1.0 : x.scales[static_cast<size_t>(m)]);
      double error = size * scale * relative;
      double expected = sum * scale;
      // Results in BF16 are rounded before scales and the bias are applied, too.
      if (is_bf16 && (is_free || has_bias)) error += (std::abs(expected) + error) * kRoundingBf16;
      if (has_bias) {
        const double added = bias[static_cast<size_t>(n)];
        expected += added;
        if (is_free) error += (std::abs(expected) + std::abs(added)) * kUnitF32 * 2;
      }
      y.Compare(m, n, expected, error, comparison);
    }
  }
  y.CompareGaps(comparison);
}

Status CheckLibraryProduct(CheckRun& run, DeviceLinear& products, CaseMemory& memory,
                           Comparison& comparison, const LibraryCase& test) {
  const LibraryShape& shape = test.shape;
  const TestWeights weights(test.format, test.kind, 1, shape.n, shape.k);
  const TestInputs x = MakeInputs(memory, test.format, test.kind, shape.m, shape.k);
  std::vector<float> bias;
  if (test.has_bias) bias = TestNumbers(63).Integers(shape.n, 9);
  device::LinearArgs args{};
  args.w = weights.Upload(memory);
  args.x = x.data;
  args.x_type = x.type;
  args.x_scales = x.device_scales;
  args.m = shape.m;
  args.y_type = test.y_type;
  args.y_stride = (shape.n + 15) / 16 * 16 + 16;
  args.bias = test.has_bias ? memory.In(bias) : nullptr;
  args.scratch = memory.Out<uint8_t>(products.ScratchBytes(args.w, shape.m) + 256);
  if (!memory.ok()) return memory.status();
  // By what the library proposes first, and by what was fastest.
  for (const bool is_tuned : {false, true}) {
    if (is_tuned) RETURN_IF_ERROR(products.Tune(run.device().stream(), args));
    // Memory that no product has written yet.
    ProductOutput y(memory, test.y_type, shape.m, shape.n, args.y_stride);
    if (!memory.ok()) return memory.status();
    args.y = y.data();
    const int64_t nvf4_before = products.counts().nvf4;
    products.Run(run.device().stream(), args);
    y.Read();
    if (!memory.ok()) return memory.status();
    CompareResults(run.device(), test, products.counts().nvf4 > nvf4_before, weights, x, bias, y,
                   comparison);
  }
  return {};
}

void CheckLibraryShapes(CheckRun& run, DeviceLinear& products,
                        std::span<const LibraryShape> shapes) {
  int turn = 0;
  for (const LibraryShape& shape : shapes) {
    for (const WeightFormat& format : WeightFormats()) {
      if (format.e4m3_inputs && !run.device().has_e4m3_products()) continue;
      for (const NumberKind kind : {NumberKind::kIntegers, NumberKind::kFree}) {
        ++turn;
        const LibraryCase test{.shape = shape,
                               .format = format,
                               .kind = kind,
                               .y_type = turn % 3 == 0 ? ElementType::kBF16 : ElementType::kF32,
                               .has_bias = turn % 4 == 0};
        const std::string text =
            fmt::format("{} x {} x {}, {}, {}{}{}", shape.m, shape.n, shape.k, format.name,
                        NumberKindName(kind), test.y_type == ElementType::kBF16 ? ", to bf16" : "",
                        test.has_bias ? ", bias" : "");
        run.Case(*shape.name == 0 ? std::string("library") : fmt::format("library {}", shape.name),
                 text, [&](CaseMemory& memory, Comparison& comparison) {
                   return CheckLibraryProduct(run, products, memory, comparison, test);
                 });
      }
    }
  }
}

}  // namespace

void CheckLibraryProducts(CheckRun& run, const device::DeviceLinearOptions& options) {
  auto products = DeviceLinear::Create(run.device().device(), run.device().kernels(), options);
  if (!products) return run.Fail("library", "", products.error());
  const std::string library = (*products)->library();
  if (library.empty())
    return run.Skip("library", "", "there is none here: own kernels multiply many rows as well");
  CheckLibraryShapes(run, **products, kLibraryShapes);
  if (run.with_large_shapes()) CheckLibraryShapes(run, **products, kLargeLibraryShapes);
  const int64_t refused = (*products)->counts().refused;
  if (refused != 0) {
    run.Skip("library", fmt::format("{} products", refused),
             library +
                 " has no algorithm for them: own kernels served them, or weights that were "
                 "expanded to BF16");
  }
}

void CheckLibrary(CheckRun& run) {
  CheckLibraryProducts(run, {});
}

}  // namespace sluice::checks
