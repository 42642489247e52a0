#include "kernels/grouped_linear.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/linear_unit.h"
#include "kernels/panel_layout.h"
#include "kernels/work_queue.h"

namespace sluice::kernels {
namespace {

// The part of a product that is one expert's.
Activations RowsOf(const Activations& x, int64_t begin, int64_t end) {
  Activations rows = x;
  rows.data = static_cast<const std::byte*>(x.data) + begin * x.stride * BitsPerElement(x.type) / 8;
  rows.rows = end - begin;
  if (x.scales != nullptr) rows.scales += begin;
  return rows;
}

}  // namespace

// A unit is some panels of one active expert with at most kRowsPerUnit of its rows, so that a few
// rows on many experts and many rows on a few spread over the threads alike.
void GroupedLinear(ThreadPool& pool, std::span<const PackedMatrix> experts,
                   std::span<const int32_t> row_begin, const Activations& x, float* y,
                   int64_t y_stride) {
  const auto num_experts = static_cast<int64_t>(experts.size());
  CHECK_EQ(static_cast<int64_t>(row_begin.size()), num_experts + 1);
  CHECK_EQ(row_begin[0], 0);
  CHECK_EQ(row_begin[num_experts], x.rows);
  CHECK_GE(x.stride, x.cols);
  if (x.rows == 0) return;
  const PackedMatrix& shape = experts[0];
  CHECK_EQ(x.cols, shape.cols);
  CHECK_GE(y_stride, shape.rows);
  for (int64_t e = 0; e < num_experts; ++e) {
    CHECK_LE(row_begin[e], row_begin[e + 1]);
    CHECK(experts[e].rows == shape.rows && experts[e].cols == shape.cols &&
              experts[e].format == shape.format,
          "expert {} is [{}, {}], expert 0 [{}, {}]", e, experts[e].rows, experts[e].cols,
          shape.rows, shape.cols);
  }
  const int64_t panels = NumPanels(shape.rows);
  const int64_t per_unit = Kernels().panels_per_unit;
  const int64_t panel_units = (panels + per_unit - 1) / per_unit;
  // Units of experts before expert e; counted anew for each, as no memory is taken here.
  const auto units_of = [&](int64_t e) {
    const int64_t rows = row_begin[e + 1] - row_begin[e];
    return (rows + kRowsPerUnit - 1) / kRowsPerUnit * panel_units;
  };
  int64_t units = 0;
  for (int64_t e = 0; e < num_experts; ++e) units += units_of(e);
  const int64_t scratch_bytes = UnitScratchBytes(x.cols);
  std::byte* scratch = LinearScratch(0, x.cols, pool.num_threads());
  ForEachUnit(pool, units, [&](int64_t unit, int thread) {
    int64_t e = 0;
    for (; unit >= units_of(e); ++e) unit -= units_of(e);
    const Activations rows = RowsOf(x, row_begin[e], row_begin[e + 1]);
    const LinearPlan plan = PlanLinear(experts[e], rows);
    const LinearArgs args =
        LinearArgsOf(plan, experts[e], rows, y + row_begin[e] * y_stride, y_stride, nullptr);
    const int64_t row_units = units_of(e) / panel_units;
    const int64_t panel = unit / row_units * per_unit;
    const int64_t row = unit % row_units * kRowsPerUnit;
    ComputeUnit(plan, args, row, std::min(rows.rows, row + kRowsPerUnit), panel,
                std::min(panels, panel + per_unit), scratch + thread * scratch_bytes);
  });
}

}  // namespace sluice::kernels
