#include "kernels/cuda/checks/check_library.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include <fmt/format.h>

#include "kernels/cuda/checks/test_numbers.h"
#include "kernels/cuda/checks/tolerances.h"

namespace sluice::checks {
namespace {

using device::DeviceLinear;

struct LibraryShape {
  const char* name;
  int64_t m, n, k;
};
// More rows than our own kernels compute by default. The numbers of rows and outputs are not
// multiples of any tile size.
constexpr LibraryShape kLibraryShapes[] = {
    {"", 65, 130, 128}, {"", 12, 192, 128}, {"", 70, 192, 256}, {"", 128, 48, 384}};
constexpr int64_t kFirstPart = 128;  // number of rows of the first of two parts
constexpr LibraryShape kLargeLibraryShapes[] = {{"Llama 3 70B qkv", 256, 10240, 8192},
                                                {"Llama 3 8B down", 1000, 4096, 14336}};

// Half a unit in the last place of BF16.
constexpr double kRoundingBf16 = 0x1p-8;

// Returns a bound of the error of a sum by the library, relative to its terms' magnitudes. For E4M3
// products, tensor cores may keep only 13 fractional bits in sums of at most 128 terms. Without
// fast accumulation, the library then adds these sums in F32.
double LibraryError(const DeviceUnderTest& device, const WeightFormat& format, int64_t k) {
  const double f32 = ProductError(device, static_cast<double>(k), /*is_e4m3=*/false);
  if (!format.e4m3_inputs || device.is_emulated()) return f32;
  constexpr double kShortSum = 128;
  return f32 + Gamma(kShortSum * (1 + 2.0 / 8) + 2, 0x1p-13);
}

// Like LibraryError, with fast accumulation, for numbers with random signs. Each added term is
// truncated 13 bits below the sum so far; that sum grows as the square root of the number of terms.
// The bound assumes that the sum and the accumulated errors of k terms stay below five standard
// deviations. It is relative to the sum of the terms' magnitudes, which is k times 0.8 of a term's
// standard deviation.
double FastError(int64_t k) {
  return 5 / 0.8 * std::sqrt(static_cast<double>(k)) * 0x1p-13;
}
// Integer sums up to this magnitude are exact in 13 bits.
constexpr double kMostFastExact = 0x1p13;

// Checks one product. Returns the ways that the library refused.
std::vector<std::string> CheckLibraryProduct(CaseMemory& memory, Comparison& comparison,
                                             DeviceLinear& products, const ModelProductCase& test) {
  ModelProduct product(memory, test);
  // Runs once with the library's first proposal, then with the fastest algorithm.
  comparison.SetSubject("untuned");
  product.Run(products, comparison);
  product.Tune(products);
  comparison.SetSubject("tuned");
  product.Run(products, comparison);
  return product.RunInEveryWay(products, comparison);
}

void CheckLibraryShapes(CheckRun& run, DeviceLinear& products,
                        std::span<const LibraryShape> shapes) {
  int turn = 0;
  for (const LibraryShape& shape : shapes) {
    for (const WeightFormat& format : WeightFormats()) {
      if (format.e4m3_inputs && !run.device().has_e4m3_products()) continue;
      const bool has_scales = format.e4m3_inputs || format.nvf4_inputs;
      for (const NumberKind kind : {NumberKind::kIntegers, NumberKind::kFree}) {
        ++turn;
        const ModelProductCase test{
            .m = shape.m,
            .n = shape.n,
            .k = shape.k,
            .format = format,
            .kind = kind,
            .y_type = turn % 3 == 0 ? ElementType::kBF16 : ElementType::kF32,
            .has_bias = turn % 4 == 0,
            // A single scale, or one scale per part, as in FP8 and NVFP4 models.
            .same_scale = shape.n % 64 == 0 && has_scales ? 0.25f : 0,
            .first_rows = shape.n % 64 == 0 && has_scales && turn % 2 == 0 ? kFirstPart : 0,
            .first_scale = 2,
            .tells_scales = true};
        const std::string text =
            fmt::format("{} x {} x {}, {}, {}{}{}", shape.m, shape.n, shape.k, format.name,
                        NumberKindName(kind), test.y_type == ElementType::kBF16 ? ", to bf16" : "",
                        test.has_bias ? ", bias" : "");
        const std::string name =
            *shape.name == 0 ? std::string("library") : fmt::format("library {}", shape.name);
        std::vector<std::string> refused;
        run.Case(name, text, [&](CaseMemory& memory, Comparison& comparison) {
          refused = CheckLibraryProduct(memory, comparison, products, test);
        });
        for (const std::string& way : refused)
          run.Skip(name, text, fmt::format("refused in the way '{}'", way));
      }
    }
  }
}

}  // namespace

ModelProduct::ModelProduct(CaseMemory& memory, const ModelProductCase& test)
    : memory_(memory),
      case_(test),
      weights_(test.format, test.kind, 1, test.n, test.k),
      x_(MakeInputs(memory, test.format, test.kind, test.m, test.k, test.same_scale)) {
  if (test.same_scale != 0) weights_.SetRowScales(test.same_scale);
  weights_.SetRowScales(test.first_scale, test.first_rows);
  if (test.has_bias) bias_ = TestNumbers(63).Integers(test.n, 9);
  args_ = LinearArgsOf(weights_.Upload(memory), x_, 0, test.m);
  args_.y_type = test.y_type;
  args_.y_stride = (test.n + 15) / 16 * 16 + 16;
  args_.bias = test.has_bias ? memory.In(bias_) : nullptr;
  if (test.tells_scales && test.same_scale != 0) TellScales();
}

void ModelProduct::TellScales() {
  args_.same_x_scale = case_.same_scale;
  if (case_.first_rows == 0) {
    args_.w.same_row_scale = case_.same_scale;
    return;
  }
  args_.w.num_parts = 2;
  args_.w.parts[0] = {case_.first_rows, case_.first_scale};
  args_.w.parts[1] = {case_.n - case_.first_rows, case_.same_scale};
}

const device::LinearArgs& ModelProduct::PrepareResults(const DeviceLinear& products) {
  y_.emplace(memory_, case_.y_type, case_.m, case_.n, args_.y_stride);
  args_.y = y_->data();
  args_.scratch = memory_.Out<uint8_t>(products.ScratchBytes(args_.w, case_.m, args_.x_is_mxf4));
  return args_;
}

void ModelProduct::Tune(DeviceLinear& products) {
  PrepareResults(products);
  if (memory_.ok()) memory_.Require(products.Tune(memory_.device().stream(), args_));
}

void ModelProduct::Run(DeviceLinear& products, Comparison& comparison) {
  using device::LinearWay;
  const device::DeviceLinearCounts before = products.counts();
  PrepareResults(products);
  if (memory_.ok()) products.Run(memory_.device().stream(), args_);
  y_->Read();
  const device::DeviceLinearCounts& after = products.counts();
  LinearWay way = products.Choose(args_);
  // The way that was used instead, if the library refused the requested one.
  if (after.own > before.own) way = LinearWay::kOwn;
  if (case_.format.nvf4_inputs && after.library > before.library && after.nvf4 == before.nvf4)
    way = LinearWay::kExpanded;
  Compare(way, comparison);
}

std::vector<std::string> ModelProduct::RunInEveryWay(DeviceLinear& products,
                                                     Comparison& comparison) {
  std::vector<std::string> refused;
  PrepareResults(products);
  const device::LinearWays ways = products.WaysOf(args_);
  for (int i = 0; i < device::kNumLinearWays && memory_.ok(); ++i) {
    const auto way = static_cast<device::LinearWay>(i);
    if (!ways.Has(way)) continue;
    PrepareResults(products);
    if (!memory_.ok()) break;
    if (!products.RunBy(way, memory_.device().stream(), args_)) {
      refused.emplace_back(NameOf(way));
      continue;
    }
    y_->Read();
    comparison.SetSubject(std::string(NameOf(way)));
    Compare(way, comparison);
  }
  return refused;
}

void ModelProduct::Compare(device::LinearWay way, Comparison& comparison) const {
  const WeightFormat& format = case_.format;
  const bool is_bf16 = case_.y_type == ElementType::kBF16,
             is_free = case_.kind == NumberKind::kFree;
  const bool is_expanded = way == device::LinearWay::kExpanded && format.type != ElementType::kBF16;
  const bool is_fast = device::HasFastSums(way) && !memory_.device().is_emulated();
  // kIntegers: sums of integers, and products with powers of two, are exact, so no relative error
  // is allowed.
  double relative = 0;
  if (is_free) {
    relative = LibraryError(memory_.device(), format, case_.k) +
               Gamma(2.0 * static_cast<double>(weights_.scaled_sums()) + 4);
    // Expanded weights were rounded, unless each weight is a code times an exact scale.
    if (is_expanded && (is_bf16 || weights_.scaled_sums() > 0)) relative += kRoundingBf16;
  }
  const SampledPlaces places(case_.m, case_.n);
  std::vector<double> w;
  for (const int64_t n : places.columns()) {
    weights_.DecodeRow(0, n, w);
    for (const int64_t m : places.rows()) {
      double sum = 0, size = 0;
      for (int64_t i = 0; i < case_.k; ++i) {
        const double product =
            x_.values[static_cast<size_t>(m * case_.k + i)] * w[static_cast<size_t>(i)];
        sum += product;
        size += std::abs(product);
      }
      const double scale =
          weights_.RowScale(0, n) * (x_.scales.empty() ? 1.0 : x_.scales[static_cast<size_t>(m)]);
      double error = size * std::abs(scale) * relative;
      if (is_fast && (is_free || size > kMostFastExact))
        error += size * std::abs(scale) * FastError(case_.k);
      double expected = sum * scale;
      // BF16 results are also rounded before the scales and the bias are applied.
      if (is_bf16 && (is_free || case_.has_bias))
        error += (std::abs(expected) + error) * kRoundingBf16;
      if (case_.has_bias) {
        const double added = bias_[static_cast<size_t>(n)];
        expected += added;
        if (is_free) error += (std::abs(expected) + std::abs(added)) * kUnitF32 * 2;
      }
      y_->Compare(m, n, expected, error, comparison);
    }
  }
  y_->CompareGaps(comparison);
}

void CheckLibraryProducts(CheckRun& run, const device::DeviceLinearOptions& options,
                          size_t most_shapes) {
  auto products = DeviceLinear::Create(run.device().device(), run.device().kernels(), options);
  if (!products) return run.Fail("library", "", products.error());
  const std::string library = (*products)->library();
  if (library.empty())
    return run.Skip("library", "", "there is none here: own kernels multiply many rows as well");
  const std::span<const LibraryShape> shapes = kLibraryShapes;
  CheckLibraryShapes(run, **products, shapes.first(std::min(most_shapes, shapes.size())));
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
  // Also allows fast sums: adds their error bound to the bound of other sums.
  CheckLibraryProducts(run, {.fast_accumulation = true});
}

}  // namespace sluice::checks
