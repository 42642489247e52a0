#include "kernels/linear.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/linear_unit.h"
#include "kernels/panel_layout.h"
#include "kernels/work_queue.h"

namespace sluice::kernels {
namespace {

// Rows whose activations are packed at once.
constexpr int64_t kMaxPackedRows = 512;

int64_t Units(int64_t count, int64_t per_unit) {
  return (count + per_unit - 1) / per_unit;
}

using PackedFunction = void (*)(const LinearArgs& args, int64_t panel_begin, int64_t panel_end);

// The function on packed activations that gives the plan's results; null where there is none.
PackedFunction PackedFunctionOf(const LinearPlan& plan) {
  const KernelTable& kernels = Kernels();
  if (kernels.pack_x == nullptr || (plan.block_inputs != 0 && !plan.folds_blocks)) return nullptr;
  if (plan.function == kernels.linear_bf16) return kernels.linear_bf16_packed;
  if (plan.function == kernels.linear_i8) return kernels.linear_i8_packed;
  return nullptr;
}

// At most kMaxPackedRows rows.
void RunPacked(ThreadPool& pool, PackedFunction function, LinearArgs args, int64_t panels) {
  const KernelTable& kernels = Kernels();
  const int64_t row_bytes = args.cols * args.x_bytes;
  const int64_t packed_bytes = kernels.packed_x_bytes(args.rows, row_bytes);
  const int64_t thread_bytes = UnitScratchBytes(args.cols);
  auto* scratch =
      reinterpret_cast<uint8_t*>(LinearScratch(packed_bytes, args.cols, pool.num_threads()));
  args.packed_x = scratch;
  ForEachUnit(pool, kernels.pack_units(args.rows, row_bytes),
              [&](int64_t unit, int) { kernels.pack_x(args, unit, unit + 1); });
  const int64_t per_unit = kernels.packed_panels_per_unit;
  ForEachUnit(pool, Units(panels, per_unit), [&](int64_t unit, int thread) {
    LinearArgs unit_args = args;
    unit_args.lines = scratch + packed_bytes + thread * thread_bytes;
    function(unit_args, unit * per_unit, std::min(panels, (unit + 1) * per_unit));
  });
}

void RunPlain(ThreadPool& pool, const LinearPlan& plan, const LinearArgs& args, int64_t rows,
              int64_t panels) {
  const int64_t scratch_bytes = UnitScratchBytes(args.cols);
  std::byte* scratch = LinearScratch(0, args.cols, pool.num_threads());
  const int64_t per_unit = Kernels().panels_per_unit;
  const int64_t row_units = Units(rows, kRowsPerUnit);
  ForEachUnit(pool, Units(panels, per_unit) * row_units, [&](int64_t unit, int thread) {
    const int64_t panel = unit / row_units * per_unit;
    const int64_t row = unit % row_units * kRowsPerUnit;
    ComputeUnit(plan, args, row, std::min(rows, row + kRowsPerUnit), panel,
                std::min(panels, panel + per_unit), scratch + thread * scratch_bytes);
  });
}

}  // namespace

void ReserveLinearScratch(const ThreadPool& pool, int64_t max_rows, int64_t max_cols) {
  const KernelTable& kernels = Kernels();
  const int64_t packed =
      kernels.packed_x_bytes == nullptr
          ? 0
          : kernels.packed_x_bytes(std::min(max_rows, kMaxPackedRows), max_cols * 2);
  LinearScratch(packed, max_cols, pool.num_threads());
}

void Linear(ThreadPool& pool, const PackedMatrix& w, const Activations& x, float* y,
            int64_t y_stride, const float* bias) {
  CHECK_EQ(x.cols, w.cols);
  CHECK_GE(x.stride, x.cols);
  CHECK_GE(y_stride, w.rows);
  if (x.rows == 0 || w.rows == 0) return;
  const LinearPlan plan = PlanLinear(w, x);
  const LinearArgs args = LinearArgsOf(plan, w, x, y, y_stride, bias);
  const int64_t panels = NumPanels(w.rows);
  const PackedFunction packed = PackedFunctionOf(plan);
  if (packed == nullptr || x.rows < Kernels().packed_min_rows)
    return RunPlain(pool, plan, args, x.rows, panels);
  const int64_t passes = Units(x.rows, kMaxPackedRows);
  for (int64_t pass = 0; pass < passes; ++pass) {
    const int64_t begin = x.rows * pass / passes;
    LinearArgs part = args;
    part.rows = x.rows * (pass + 1) / passes - begin;
    part.x = static_cast<const std::byte*>(x.data) + begin * x.stride * args.x_bytes;
    part.y = y + begin * y_stride;
    if (x.scales != nullptr) part.x_scales = x.scales + begin;
    RunPacked(pool, packed, part, panels);
  }
}

}  // namespace sluice::kernels
