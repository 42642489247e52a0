#include "kernels/linear.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/kernel_table.h"
#include "kernels/work_queue.h"

namespace sluice::kernels {
namespace {

// Rows that one unit of work multiplies with its panels. More would only help a matrix of few
// panels less to spread over many threads; a multiple of every kernel's tile height.
constexpr int64_t kRowsPerUnit = 768;
// Rows whose activations are packed at once.
constexpr int64_t kMaxPackedRows = 512;

LinearFunction Choose(const PackedMatrix& w, const Activations& x) {
  const KernelTable& kernels = Kernels();
  if (x.type == ElementType::kBF16) {
    CHECK(w.format.type == ElementType::kBF16, "BF16 activations need BF16 weights");
    return kernels.linear_bf16;
  }
  CHECK(x.type == ElementType::kF32, "activations are F32 or BF16, not {}",
        ElementTypeName(x.type));
  return w.format.type == ElementType::kBF16 ? kernels.linear_f32_bf16 : kernels.linear_f32;
}

// Memory for packed activations, held for each thread that calls Linear; grows to the largest
// product it has seen.
std::byte* PackedScratch(int64_t bytes) {
  thread_local Buffer scratch;
  if (static_cast<int64_t>(scratch.size_bytes()) < bytes) {
    scratch = Buffer();
    Result<Buffer> buffer = Buffer::Allocate(static_cast<size_t>(bytes), "packed activations");
    CHECK(buffer.has_value(), "{}", buffer.error().message);
    scratch = std::move(*buffer);
  }
  return scratch.data();
}

int64_t Units(int64_t count, int64_t per_unit) {
  return (count + per_unit - 1) / per_unit;
}

void RunPacked(ThreadPool& pool, const LinearArgs& args, int64_t panels) {
  const KernelTable& kernels = Kernels();
  ForEachUnit(pool, kernels.pack_units(args.rows, args.cols),
              [&](int64_t unit, int) { kernels.pack_x(args, unit, unit + 1); });
  const int64_t per_unit = kernels.packed_panels_per_unit;
  ForEachUnit(pool, Units(panels, per_unit), [&](int64_t unit, int) {
    kernels.linear_bf16_packed(args, unit * per_unit, std::min(panels, (unit + 1) * per_unit));
  });
}

void RunPlain(ThreadPool& pool, LinearFunction function, const LinearArgs& args, int64_t rows,
              int64_t panels) {
  const int64_t per_unit = Kernels().panels_per_unit;
  const int64_t row_units = Units(rows, kRowsPerUnit);
  ForEachUnit(pool, Units(panels, per_unit) * row_units, [&](int64_t unit, int) {
    const int64_t panel = unit / row_units * per_unit;
    const int64_t row = unit % row_units * kRowsPerUnit;
    function(args, row, std::min(rows, row + kRowsPerUnit), panel,
             std::min(panels, panel + per_unit));
  });
}

}  // namespace

void ReserveLinearScratch(int64_t max_rows, int64_t max_cols) {
  if (Kernels().packed_x_bytes == nullptr) return;
  PackedScratch(Kernels().packed_x_bytes(std::min(max_rows, kMaxPackedRows), max_cols));
}

void Linear(ThreadPool& pool, const PackedMatrix& w, const Activations& x, float* y,
            int64_t y_stride, const float* bias) {
  CHECK_EQ(x.cols, w.cols);
  CHECK_GE(x.stride, x.cols);
  CHECK_GE(y_stride, w.rows);
  if (x.rows == 0 || w.rows == 0) return;
  const LinearFunction function = Choose(w, x);
  LinearArgs args{.x = x.data,
                  .x_stride = x.stride,
                  .w = w.data.data(),
                  .cols = w.cols,
                  .outputs = w.rows,
                  .y = y,
                  .y_stride = y_stride,
                  .bias = bias,
                  .packed_x = nullptr,
                  .rows = 0};
  const int64_t panels = Units(w.rows, PackedMatrix::kPanelRows);
  const KernelTable& kernels = Kernels();
  const bool packed = function == kernels.linear_bf16 && kernels.pack_x != nullptr &&
                      x.rows >= kernels.packed_min_rows;
  if (!packed) return RunPlain(pool, function, args, x.rows, panels);
  const int64_t passes = Units(x.rows, kMaxPackedRows);
  for (int64_t pass = 0; pass < passes; ++pass) {
    const int64_t begin = x.rows * pass / passes;
    args.rows = x.rows * (pass + 1) / passes - begin;
    args.x = x.bf16() + begin * x.stride;
    args.y = y + begin * y_stride;
    args.packed_x =
        reinterpret_cast<uint8_t*>(PackedScratch(kernels.packed_x_bytes(args.rows, args.cols)));
    RunPacked(pool, args, panels);
  }
}

}  // namespace sluice::kernels
