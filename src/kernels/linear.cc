#include "kernels/linear.h"

#include "base/check.h"
#include "kernels/kernel_table.h"
#include "kernels/work_queue.h"

namespace sluice::kernels {
namespace {

// Rows that one unit of work multiplies with its panels. More would only help a matrix of few panels less to spread
// over many threads; a multiple of every kernel's tile height.
constexpr int64_t kRowsPerUnit = 768;

LinearFunction Choose(const PackedMatrix& w, const Activations& x) {
  const KernelTable& kernels = Kernels();
  if (x.type == ElementType::kBF16) {
    CHECK(w.format.type == ElementType::kBF16, "BF16 activations need BF16 weights");
    return kernels.linear_bf16;
  }
  CHECK(x.type == ElementType::kF32, "activations are F32 or BF16, not {}", ElementTypeName(x.type));
  return w.format.type == ElementType::kBF16 ? kernels.linear_f32_bf16 : kernels.linear_f32;
}

}  // namespace

void Linear(ThreadPool& pool, const PackedMatrix& w, const Activations& x, float* y, int64_t y_stride,
            const float* bias) {
  CHECK_EQ(x.cols, w.cols);
  CHECK_GE(x.stride, x.cols);
  CHECK_GE(y_stride, w.rows);
  if (x.rows == 0 || w.rows == 0) return;
  const LinearFunction function = Choose(w, x);
  const LinearArgs args{.x = x.data,
                        .x_stride = x.stride,
                        .w = w.data.data(),
                        .cols = w.cols,
                        .outputs = w.rows,
                        .y = y,
                        .y_stride = y_stride,
                        .bias = bias};
  const int64_t panels = (w.rows + PackedMatrix::kPanelRows - 1) / PackedMatrix::kPanelRows;
  const int64_t panels_per_unit = Kernels().panels_per_unit;
  const int64_t panel_units = (panels + panels_per_unit - 1) / panels_per_unit;
  const int64_t row_units = (x.rows + kRowsPerUnit - 1) / kRowsPerUnit;
  ForEachUnit(pool, panel_units * row_units, [&](int64_t unit, int) {
    const int64_t panel = unit / row_units * panels_per_unit;
    const int64_t row = unit % row_units * kRowsPerUnit;
    function(args, row, std::min(x.rows, row + kRowsPerUnit), panel, std::min(panels, panel + panels_per_unit));
  });
}

}  // namespace sluice::kernels
