// Matrix products of experts: each with rows of its own, some with none.
#include <fmt/format.h>

#include "kernels/cuda/checks/check_run.h"
#include "kernels/cuda/checks/products.h"
#include "kernels/cuda/checks/test_weights.h"
#include "kernels/cuda/linear_shapes.h"

namespace sluice::checks {
namespace {

struct GroupedShape {
  const char* name;
  std::vector<int32_t> rows_of_expert;
  int64_t n, k;
};

Status CheckGrouped(CheckRun& run, CaseMemory& memory, Comparison& comparison,
                    const GroupedShape& shape, const WeightFormat& format, NumberKind kind,
                    ElementType y_type) {
  const auto experts = static_cast<int64_t>(shape.rows_of_expert.size());
  std::vector<int32_t> row_begin = {0};
  for (const int32_t rows : shape.rows_of_expert) row_begin.push_back(row_begin.back() + rows);
  const int64_t m = row_begin.back();
  const TestWeights weights(format, kind, experts, shape.n, shape.k);
  const TestInputs x = MakeInputs(memory, format, kind, m, shape.k);
  ProductOutput y(memory, y_type, m, shape.n, shape.n);
  device::GroupedLinearArgs args{};
  args.linear.w = weights.Upload(memory);
  args.linear.x = x.data;
  args.linear.x_type = x.type;
  args.linear.x_scales = x.device_scales;
  args.linear.m = m;
  args.linear.y = y.data();
  args.linear.y_type = y_type;
  args.linear.y_stride = y.stride();
  args.linear.scratch = memory.Out<uint8_t>(device::LinearScratchBytes(args.linear.w, m) + 256);
  args.num_experts = experts;
  args.codes_stride = weights.codes_stride();
  args.group_scales_stride = weights.group_scales_stride();
  args.row_scales_stride = weights.row_scales_stride();
  args.row_begin = memory.In(row_begin);
  if (!memory.ok()) return memory.status();
  RETURN_IF_ERROR(device::CheckGroupedLinear(args));
  run.device().kernels().grouped_linear(run.device().handle(), args);
  y.Read();
  if (!memory.ok()) return memory.status();
  const std::vector<float> no_bias;
  for (int64_t expert = 0; expert < experts; ++expert) {
    const auto begin = row_begin[static_cast<size_t>(expert)];
    const SampledPlaces places(shape.rows_of_expert[static_cast<size_t>(expert)], shape.n);
    std::vector<int64_t> rows = places.rows();
    for (int64_t& row : rows) row += begin;
    const ProductRows products{weights, expert, x, shape.k, no_bias, kind, format.e4m3_inputs};
    for (const int64_t n : places.columns()) {
      products.ForColumn(run.device(), n, rows, [&](int64_t row, double expected, double error) {
        y.Compare(row, n, expected, error, comparison);
      });
    }
  }
  return {};
}

}  // namespace

void CheckGroupedLinear(CheckRun& run) {
  std::vector<GroupedShape> shapes = {{"", {2, 0, 1, 5}, 64, 128}, {"", {20, 1, 0}, 96, 256}};
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
                   return CheckGrouped(run, memory, comparison, shape, format, kind,
                                       is_bf16 ? ElementType::kBF16 : ElementType::kF32);
                 });
      }
    }
  }
}

}  // namespace sluice::checks
