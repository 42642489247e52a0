#include "kernels/linear.h"

#include "base/check.h"
#include "kernels/linear_products.h"

namespace sluice::kernels {

void ReserveLinearScratch(const ThreadPool& pool, int64_t max_rows, int64_t max_cols,
                          bool orders_inputs) {
  if (orders_inputs) LinearProducts::ReserveOrdered(max_rows, max_cols);
  LinearScratch(LinearProducts::PackedBytesAtMost(max_rows, max_cols), max_cols,
                pool.num_threads());
}

int64_t LinearScratchBytes(int num_threads, int64_t max_rows, int64_t max_cols,
                           bool orders_inputs) {
  return (orders_inputs ? LinearProducts::OrderedBytesAtMost(max_rows, max_cols) : 0) +
         LinearProducts::PackedBytesAtMost(max_rows, max_cols) +
         num_threads * UnitScratchBytes(max_cols);
}

void Linear(ThreadPool& pool, const PackedMatrix& w, const Activations& x, float* y,
            int64_t y_stride, const float* bias, const RowMaxima& maxima) {
  CHECK_EQ(x.cols, w.cols);
  CHECK_GE(x.stride, x.cols);
  CHECK_GE(y_stride, w.rows);
  LinearProducts products(pool, x.rows, w.cols);
  products.Add(w, x, y, y_stride, bias, maxima);
  products.Run();
}

}  // namespace sluice::kernels
