#include "kernels/grouped_linear.h"

#include "base/check.h"
#include "kernels/linear_products.h"

namespace sluice::kernels {
namespace {

Activations RowsOf(const Activations& x, int64_t begin, int64_t end) {
  Activations rows = x;
  rows.data = static_cast<const std::byte*>(x.data) + begin * x.stride * BitsPerElement(x.type) / 8;
  rows.rows = end - begin;
  if (x.scales != nullptr) rows.scales += begin;
  return rows;
}

}  // namespace

void GroupedLinear(ThreadPool& pool, std::span<const PackedMatrix> experts,
                   std::span<const int32_t> row_begin, const Activations& x, float* y,
                   int64_t y_stride, const float* bias) {
  const size_t num_experts = experts.size();
  CHECK_EQ(row_begin.size(), num_experts + 1);
  CHECK_EQ(row_begin[0], 0);
  CHECK_EQ(row_begin[num_experts], x.rows);
  CHECK_GE(x.stride, x.cols);
  const PackedMatrix& shape = experts[0];
  CHECK_EQ(x.cols, shape.cols);
  CHECK_GE(y_stride, shape.rows);
  LinearProducts products(pool, x.rows, x.cols);
  for (size_t e = 0; e < num_experts; ++e) {
    const int32_t begin = row_begin[e], end = row_begin[e + 1];
    CHECK_LE(begin, end);
    if (begin == end) continue;
    const PackedMatrix& w = experts[e];
    CHECK(w.rows == shape.rows && w.cols == shape.cols, "expert {} is [{}, {}], expert 0 [{}, {}]",
          e, w.rows, w.cols, shape.rows, shape.cols);
    products.Add(w, RowsOf(x, begin, end), y + begin * y_stride, y_stride,
                 bias == nullptr ? nullptr : bias + static_cast<int64_t>(e) * w.rows);
  }
  products.Run();
}

}  // namespace sluice::kernels
