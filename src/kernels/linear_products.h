// Batches products of activations with packed matrices (one for linear, one per expert for grouped
// linear) and divides all their work among the threads.
#pragma once

#include <array>
#include <cstdint>

#include "base/thread_pool.h"
#include "kernels/block_maxima.h"
#include "kernels/linear_unit.h"

namespace sluice::kernels {

// Collects products and runs them together. Allocates nothing except the calling thread's scratch.
class LinearProducts {
 public:
  // `rows`: number of rows of all products together. `cols`: number of inputs of every product.
  LinearProducts(ThreadPool& pool, int64_t rows, int64_t cols)
      : pool_(pool), rows_(rows), cols_(cols) {}

  // Adds the product y = x W^T + bias, with its block maxima if requested. Runs the collected
  // products first if there is no room for another.
  void Add(const PackedMatrix& w, const Activations& x, float* y, int64_t y_stride,
           const float* bias, const RowMaxima& maxima = {});
  // Runs the collected products.
  void Run();

  // Upper bound in bytes of the packed activations of products with up to `cols` inputs and
  // `max_rows` rows.
  static int64_t PackedBytesAtMost(int64_t max_rows, int64_t cols);
  // Upper bound in bytes of inputs permuted to a matrix's order (PackedMatrix::input_order).
  static int64_t OrderedBytesAtMost(int64_t max_rows, int64_t cols);
  static void ReserveOrdered(int64_t max_rows, int64_t cols);

 private:
  using PackedFunction = void (*)(const LinearArgs& args, int64_t panel_begin, int64_t panel_end);
  // One collected product: some rows of activations times one matrix. No default initializers,
  // since most elements of `products_` are never used.
  struct Product {
    LinearPlan plan;
    LinearArgs args;
    PackedFunction packed;  // null: the activations are not packed
    int64_t rows;
    int64_t panels;
    int64_t panels_at_once;  // only if the activations are not packed
    int64_t panels_per_unit;
    int64_t row_units;
    RowMaxima maxima;
    int64_t packed_offset;      // offset of its packed activations in the scratch memory
    int64_t pack_units_before;  // sum over the earlier products
    int64_t units_before;
  };
  static constexpr int64_t kMaxProducts = 128;

  // Runs the collected products if there is no room for another.
  void MakeRoom(bool is_packed, bool is_ordered, int64_t rows);
  // Permutes `rows` rows of inputs to the order of the matrix, and points `args` to the result.
  void OrderInputs(const PackedMatrix& w, LinearArgs& args, int64_t rows);
  void AddRows(const LinearPlan& plan, const LinearArgs& args, PackedFunction packed, int64_t rows,
               const RowMaxima& maxima);
  static void RunUnit(const Product& product, int64_t unit, std::byte* scratch);

  ThreadPool& pool_;
  int64_t rows_;
  int64_t cols_;
  int64_t count_ = 0;
  int64_t ordered_rows_ = 0;
  int64_t packed_rows_ = 0;
  int64_t packed_bytes_ = 0;
  int64_t pack_units_ = 0;
  int64_t units_ = 0;
  std::array<Product, kMaxProducts> products_;
};

}  // namespace sluice::kernels
