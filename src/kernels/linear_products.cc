#include "kernels/linear_products.h"

#include <algorithm>

#include "kernels/panel_layout.h"
#include "kernels/work_queue.h"

namespace sluice::kernels {
namespace {

// Rows whose activations are packed at once, each product's rounded up to whole tiles.
constexpr int64_t kMaxPackedRows = 512;
constexpr int64_t kPackedRowMultiple = 32;

int64_t Units(int64_t count, int64_t per_unit) {
  return (count + per_unit - 1) / per_unit;
}

// Panels of a unit on packed activations: what the kernels like most, or fewer where the threads
// would not get some units each.
int64_t PackedPanelsPerUnit(int64_t panels, int num_threads) {
  constexpr int64_t kUnitsPerThread = 4;
  int64_t per_unit = Kernels().packed_panels_per_unit;
  while (per_unit > 2 && Units(panels, per_unit) < kUnitsPerThread * num_threads) per_unit /= 2;
  return per_unit;
}

int64_t PackedRows(int64_t rows) {
  return Units(rows, kPackedRowMultiple) * kPackedRowMultiple;
}

}  // namespace

int64_t LinearProducts::PackedBytesAtMost(int64_t max_rows, int64_t cols) {
  const KernelTable& kernels = Kernels();
  if (kernels.packed_x_bytes == nullptr || max_rows < kernels.packed_min_rows) return 0;
  return kernels.packed_x_bytes(kMaxPackedRows, cols * 2);
}

void LinearProducts::Add(const PackedMatrix& w, const Activations& x, float* y, int64_t y_stride,
                         const float* bias) {
  if (x.rows == 0 || w.rows == 0) return;
  const KernelTable& kernels = Kernels();
  const LinearPlan plan = PlanLinear(w, x);
  const LinearArgs args = LinearArgsOf(plan, w, x, y, y_stride, bias);
  PackedFunction packed = nullptr;
  if (kernels.pack_x != nullptr && x.rows >= kernels.packed_min_rows &&
      (plan.block_inputs == 0 || plan.folds_blocks)) {
    if (plan.function == kernels.linear_bf16) packed = kernels.linear_bf16_packed;
    if (plan.function == kernels.linear_i8) packed = kernels.linear_i8_packed;
  }
  const int64_t passes = packed == nullptr ? 1 : Units(x.rows, kMaxPackedRows);
  for (int64_t pass = 0; pass < passes; ++pass) {
    const int64_t begin = x.rows * pass / passes;
    const int64_t rows = x.rows * (pass + 1) / passes - begin;
    LinearArgs part = args;
    part.x = static_cast<const std::byte*>(x.data) + begin * x.stride * args.x_bytes;
    part.y = y + begin * y_stride;
    if (x.scales != nullptr) part.x_scales = x.scales + begin;
    AddRows(plan, part, packed, rows);
  }
}

void LinearProducts::AddRows(const LinearPlan& plan, const LinearArgs& args, PackedFunction packed,
                             int64_t rows) {
  const KernelTable& kernels = Kernels();
  const bool is_packed = packed != nullptr;
  if (count_ == kMaxProducts || (is_packed && packed_rows_ + PackedRows(rows) > kMaxPackedRows))
    Run();
  Product& product = products_[static_cast<size_t>(count_++)];
  product.plan = plan;
  product.args = args;
  product.args.rows = rows;
  product.packed = packed;
  product.rows = rows;
  product.panels = NumPanels(args.outputs);
  product.panels_per_unit = is_packed ? PackedPanelsPerUnit(product.panels, pool_.num_threads())
                                      : kernels.panels_per_unit;
  product.row_units = is_packed ? 1 : Units(rows, kRowsPerUnit);
  product.packed_offset = packed_bytes_;
  product.pack_units_before = pack_units_;
  product.units_before = units_;
  units_ += Units(product.panels, product.panels_per_unit) * product.row_units;
  if (is_packed) {
    const int64_t row_bytes = args.cols * args.x_bytes;
    packed_rows_ += PackedRows(rows);
    packed_bytes_ += kernels.packed_x_bytes(rows, row_bytes);
    pack_units_ += kernels.pack_units(rows, row_bytes);
  }
}

void LinearProducts::RunUnit(const Product& product, int64_t unit, std::byte* scratch) const {
  const int64_t panel = unit / product.row_units * product.panels_per_unit;
  const int64_t panel_end = std::min(product.panels, panel + product.panels_per_unit);
  if (product.packed != nullptr) {
    LinearArgs args = product.args;
    args.lines = reinterpret_cast<uint8_t*>(scratch);
    return product.packed(args, panel, panel_end);
  }
  const int64_t row = unit % product.row_units * kRowsPerUnit;
  ComputeUnit(product.plan, product.args, row, std::min(product.rows, row + kRowsPerUnit), panel,
              panel_end, scratch);
}

void LinearProducts::Run() {
  if (count_ == 0) return;
  std::byte* scratch = LinearScratch(packed_bytes_, cols_, pool_.num_threads());
  const int64_t thread_bytes = UnitScratchBytes(cols_);
  Product* const end = products_.data() + count_;
  for (Product* product = products_.data(); product != end; ++product) {
    product->args.packed_x = reinterpret_cast<uint8_t*>(scratch + product->packed_offset);
  }
  // The last product that begins at `unit` or before.
  const auto find = [&](int64_t unit, int64_t Product::*units_before) {
    return std::upper_bound(
               products_.data(), end, unit,
               [&](int64_t value, const Product& p) { return value < p.*units_before; }) -
           1;
  };
  if (pack_units_ > 0) {
    ForEachUnit(pool_, pack_units_, [&](int64_t unit, int) {
      const Product* product = find(unit, &Product::pack_units_before);
      const int64_t index = unit - product->pack_units_before;
      Kernels().pack_x(product->args, index, index + 1);
    });
  }
  ForEachUnit(pool_, units_, [&](int64_t unit, int thread) {
    const Product* product = find(unit, &Product::units_before);
    RunUnit(*product, unit - product->units_before,
            scratch + packed_bytes_ + thread * thread_bytes);
  });
  count_ = packed_rows_ = packed_bytes_ = pack_units_ = units_ = 0;
}

}  // namespace sluice::kernels
