// Checks matrix products of experts, each with its own rows; some experts have no rows.
#include <fmt/format.h>

#include "kernels/cuda/checks/check_run.h"
#include "kernels/cuda/checks/products.h"
#include "kernels/cuda/checks/test_weights.h"
#include "kernels/cuda/linear_shapes.h"

namespace sluice::checks {
namespace {

using device::DeviceKernels;

struct GroupedShape {
  const char* name;
  std::vector<int32_t> rows_of_expert;
  int64_t n, k;
};

void CheckGrouped(CaseMemory& memory, Comparison& comparison, const GroupedShape& shape,
                  const WeightFormat& format, NumberKind kind, ElementType y_type) {
  const auto experts = static_cast<int64_t>(shape.rows_of_expert.size());
  std::vector<int32_t> row_begin = {0};
  for (const int32_t rows : shape.rows_of_expert) row_begin.push_back(row_begin.back() + rows);
  const int64_t m = row_begin.back();
  const TestWeights weights(format, kind, experts, shape.n, shape.k);
  const TestInputs x = MakeInputs(memory, format, kind, m, shape.k);
  ProductOutput y(memory, y_type, m, shape.n, shape.n);
  device::GroupedLinearArgs args{};
  args.linear = LinearArgsOf(weights.Upload(memory), x, 0, m);
  args.linear.y = y.data();
  args.linear.y_type = y_type;
  args.linear.y_stride = y.stride();
  args.linear.scratch = memory.Out<uint8_t>(device::LinearScratchBytes(args.linear.w, m));
  args.num_experts = experts;
  args.codes_stride = weights.codes_stride();
  args.group_scales_stride = weights.group_scales_stride();
  args.row_scales_stride = weights.row_scales_stride();
  args.row_begin = memory.In(row_begin);
  PackInputs(memory, args.linear);
  memory.Require(device::CheckGroupedLinear(args));
  memory.Launch(&DeviceKernels::grouped_linear, args);
  y.Read();
  const std::vector<float> no_bias;
  for (int64_t expert = 0; expert < experts; ++expert) {
    const auto begin = row_begin[static_cast<size_t>(expert)];
    const SampledPlaces places(shape.rows_of_expert[static_cast<size_t>(expert)], shape.n);
    std::vector<int64_t> rows = places.rows();
    for (int64_t& row : rows) row += begin;
    const ProductRows products{weights, expert, x, shape.k, no_bias, kind, format.e4m3_inputs};
    for (const int64_t n : places.columns()) {
      products.ForColumn(memory.device(), n, rows, [&](int64_t row, double expected, double error) {
        y.Compare(row, n, expected, error, comparison);
      });
    }
  }
  // The first expert's rows must be bit-identical to a separate product.
  const int64_t first = shape.rows_of_expert.front();
  if (first == 0) return;
  const ProductOutput alone =
      Multiply(memory, LinearArgsOf(args.linear.w, x, 0, first), y_type, shape.n);
  for (int64_t row = 0; row < first; ++row) {
    for (int64_t n = 0; n < shape.n; ++n)
      comparison.AddEqual(alone.BitsAt(row, n), y.BitsAt(row, n));
  }
}

// Returns a shape with more experts than a warp has lanes; some of them have no rows.
GroupedShape ManyExperts() {
  GroupedShape shape{"", {}, 8, 32};
  for (int expert = 0; expert < 70; ++expert)
    shape.rows_of_expert.push_back(expert % 3 == 0 ? 0 : expert % 5);
  return shape;
}

}  // namespace

void CheckGroupedLinear(CheckRun& run) {
  std::vector<GroupedShape> shapes = {{"", {2, 0, 1, 5}, 64, 128}, {"", {20, 1, 0}, 96, 256}};
  if (run.with_all_shapes()) {  // row counts that need tiles of 16 and of 64 rows, and a split k
    for (const GroupedShape& shape : {GroupedShape{"", {0, 3, 0, 37, 1, 0}, 66, 96},
                                      {"", {90, 0, 40}, 66, 96},
                                      {"", {2, 0, 3}, 66, 2048},
                                      ManyExperts()})
      shapes.push_back(shape);
  }
  const auto small = static_cast<int64_t>(shapes.size());
  if (run.with_large_shapes()) {
    shapes.push_back({"Scout, a quarter", {3, 0, 0, 64, 1, 9, 0, 2}, 4096, 5120});
    shapes.push_back({"Qwen3 30B down", std::vector<int32_t>(128, 2), 2048, 768});
  }
  for (const GroupedShape& shape : shapes) {
    const bool is_large = &shape - shapes.data() >= small;
    for (const WeightFormat& format : WeightFormats()) {
      if (format.e4m3_inputs && !run.device().has_e4m3_products()) continue;
      for (const NumberKind kind : {NumberKind::kIntegers, NumberKind::kFree}) {
        if (is_large && kind == NumberKind::kFree) continue;
        const bool is_bf16 = kind == NumberKind::kFree;
        run.Case("grouped_linear",
                 fmt::format("{}{} experts of {} x {}, {}, {}", shape.name, is_large ? ", " : "",
                             shape.rows_of_expert.size(), shape.n, shape.k, format.name,
                             NumberKindName(kind)),
                 [&](CaseMemory& memory, Comparison& comparison) {
                   CheckGrouped(memory, comparison, shape, format, kind,
                                is_bf16 ? ElementType::kBF16 : ElementType::kF32);
                 });
      }
    }
  }
}

}  // namespace sluice::checks
