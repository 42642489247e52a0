#include "kernels/linear_products.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "base/check.h"
#include "kernels/panel_layout.h"
#include "kernels/work_queue.h"

namespace sluice::kernels {
namespace {

// Maximum number of rows of packed activations at a time; each product's rows are rounded up to
// whole tiles.
constexpr int64_t kMaxPackedRows = 512;
constexpr int64_t kPackedRowMultiple = 32;
// Up to this many rows, units have half as many panels as the kernels prefer, because a larger unit
// would have to wait for the weights of all its panels. This is 5 to 17 % faster on 64 and 128 rows
// (Granite Rapids).
constexpr int64_t kFewPackedRows = 192;
// Maximum number of rows of permuted inputs at a time.
constexpr int64_t kMaxOrderedRows = 512;
// Panels per block of maxima. If maxima are requested, the units of a product are whole blocks.
constexpr int64_t kMaximaPanels = kMaximaBlock / PackedMatrix::kPanelRows;

int64_t Units(int64_t count, int64_t per_unit) {
  return (count + per_unit - 1) / per_unit;
}

// Panels per unit on packed activations: the number that the kernels prefer, or fewer if each
// thread would get less than kUnitsPerThread units.
int64_t PackedPanelsPerUnit(int64_t rows, int64_t panels, int num_threads) {
  constexpr int64_t kUnitsPerThread = 4;
  int64_t per_unit = Kernels().packed_panels_per_unit;
  if (rows <= kFewPackedRows) per_unit /= 2;
  while (per_unit > 2 && Units(panels, per_unit) < kUnitsPerThread * num_threads) per_unit /= 2;
  return per_unit;
}

// Panels that are computed together if activations are not packed.
int PanelsAtOnce(const LinearPlan& plan, int64_t rows, int64_t panels, int num_threads) {
  const KernelTable& kernels = Kernels();
  const bool is_enough = panels >= int64_t{2} * num_threads * kernels.few_rows_panels;
  if (rows <= kernels.few_rows && is_enough && ExpandsItself(plan, rows))
    return kernels.few_rows_panels;
  return kernels.panels_per_unit;
}

// The calling thread's memory for permuted rows; grows on demand.
std::byte* OrderedScratch(int64_t bytes) {
  thread_local Buffer scratch;
  if (scratch.size_bytes() < static_cast<size_t>(bytes)) {
    scratch = Buffer();
    Result<Buffer> buffer =
        Buffer::Allocate(static_cast<size_t>(bytes), "inputs in the order of the weights");
    CHECK(buffer.has_value(), "{}", buffer.error().message);
    scratch = std::move(*buffer);
  }
  return scratch.data();
}

template <typename T>
void OrderRow(std::span<const int32_t> order, const std::byte* x, std::byte* out) {
  const auto* from = reinterpret_cast<const T*>(x);
  auto* to = reinterpret_cast<T*>(out);
  for (size_t i = 0; i < order.size(); ++i) to[i] = from[order[i]];
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

int64_t LinearProducts::OrderedBytesAtMost(int64_t max_rows, int64_t cols) {
  return std::min(max_rows, kMaxOrderedRows) * cols * static_cast<int64_t>(sizeof(float));
}

void LinearProducts::ReserveOrdered(int64_t max_rows, int64_t cols) {
  OrderedScratch(OrderedBytesAtMost(max_rows, cols));
}

void LinearProducts::OrderInputs(const PackedMatrix& w, LinearArgs& args, int64_t rows) {
  // Reserves room for all rows, so that the memory does not move while collected products still
  // read from it.
  std::byte* ordered = OrderedScratch(OrderedBytesAtMost(rows_, cols_)) +
                       ordered_rows_ * cols_ * static_cast<int64_t>(sizeof(float));
  const std::span<const int32_t> order = w.input_order.As<int32_t>();
  const auto* x = static_cast<const std::byte*>(args.x);
  pool_.ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const std::byte* from = x + row * args.x_stride * args.x_bytes;
      std::byte* to = ordered + row * cols_ * args.x_bytes;
      if (args.x_bytes == 2)
        OrderRow<uint16_t>(order, from, to);
      else
        OrderRow<float>(order, from, to);
    }
  });
  args.x = ordered;
  args.x_stride = cols_;
  ordered_rows_ += rows;
}

void LinearProducts::MakeRoom(bool is_packed, bool is_ordered, int64_t rows) {
  if (count_ == kMaxProducts || (is_packed && packed_rows_ + PackedRows(rows) > kMaxPackedRows) ||
      (is_ordered && ordered_rows_ + rows > kMaxOrderedRows))
    Run();
}

void LinearProducts::Add(const PackedMatrix& w, const Activations& x, float* y, int64_t y_stride,
                         const float* bias, const RowMaxima& maxima) {
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
  const bool is_ordered = w.input_order.size_bytes() != 0;
  const int64_t pass_rows = is_ordered          ? kMaxOrderedRows
                            : packed != nullptr ? kMaxPackedRows
                                                : x.rows;
  const int64_t passes = Units(x.rows, pass_rows);
  for (int64_t pass = 0; pass < passes; ++pass) {
    const int64_t begin = x.rows * pass / passes;
    const int64_t rows = x.rows * (pass + 1) / passes - begin;
    LinearArgs part = args;
    part.x = static_cast<const std::byte*>(x.data) + begin * x.stride * args.x_bytes;
    part.y = y + begin * y_stride;
    if (x.scales != nullptr) part.x_scales = x.scales + begin;
    MakeRoom(packed != nullptr, is_ordered, rows);
    if (is_ordered) OrderInputs(w, part, rows);
    AddRows(plan, part, packed, rows, maxima.From(begin, 0));
  }
}

void LinearProducts::AddRows(const LinearPlan& plan, const LinearArgs& args, PackedFunction packed,
                             int64_t rows, const RowMaxima& maxima) {
  const KernelTable& kernels = Kernels();
  const bool is_packed = packed != nullptr;
  Product& product = products_[static_cast<size_t>(count_++)];
  product.plan = plan;
  product.args = args;
  product.args.rows = rows;
  product.packed = packed;
  product.rows = rows;
  product.panels = NumPanels(args.outputs);
  product.panels_at_once = PanelsAtOnce(plan, rows, product.panels, pool_.num_threads());
  product.panels_per_unit = is_packed
                                ? PackedPanelsPerUnit(rows, product.panels, pool_.num_threads())
                                : product.panels_at_once;
  product.maxima = maxima;
  if (maxima.data != nullptr)
    product.panels_per_unit = std::lcm(product.panels_per_unit, kMaximaPanels);
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

void LinearProducts::RunUnit(const Product& product, int64_t unit, std::byte* scratch) {
  const int64_t panel = unit / product.row_units * product.panels_per_unit;
  const int64_t panel_end = std::min(product.panels, panel + product.panels_per_unit);
  const int64_t row = unit % product.row_units * kRowsPerUnit;
  const int64_t row_end =
      product.packed != nullptr ? product.rows : std::min(product.rows, row + kRowsPerUnit);
  LinearArgs args = product.args;
  if (product.packed != nullptr) {
    args.lines = reinterpret_cast<uint8_t*>(scratch);
    product.packed(args, panel, panel_end);
  } else {
    const int64_t at_once = product.panels_at_once;
    for (int64_t begin = panel; begin < panel_end; begin += at_once) {
      ComputeUnit(product.plan, args, row, row_end, begin, std::min(begin + at_once, panel_end),
                  scratch);
    }
  }
  if (product.maxima.data == nullptr) return;
  const int64_t column = panel * PackedMatrix::kPanelRows;
  const int64_t column_end = std::min(args.outputs, panel_end * PackedMatrix::kPanelRows);
  FindMaxima(args.y + row * args.y_stride + column, args.y_stride, row_end - row,
             column_end - column, product.maxima.From(row, panel / kMaximaPanels));
}

void LinearProducts::Run() {
  if (count_ == 0) return;
  std::byte* scratch = LinearScratch(packed_bytes_, cols_, pool_.num_threads());
  const int64_t thread_bytes = UnitScratchBytes(cols_);
  Product* const end = products_.data() + count_;
  for (Product* product = products_.data(); product != end; ++product) {
    product->args.packed_x = reinterpret_cast<uint8_t*>(scratch + product->packed_offset);
  }
  // The last product whose first unit is at or before `unit`.
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
  count_ = ordered_rows_ = packed_rows_ = packed_bytes_ = pack_units_ = units_ = 0;
}

}  // namespace sluice::kernels
