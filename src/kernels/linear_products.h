// Runs products of activations with packed matrices: one of linear, or one for each expert of
// grouped linear, so that all their units of work share the threads.
#pragma once

#include <array>
#include <cstdint>

#include "base/thread_pool.h"
#include "kernels/linear_unit.h"

namespace sluice::kernels {

// Collects products and runs them together. Takes no memory but the calling thread's scratch.
class LinearProducts {
 public:
  // `cols`: the inputs of every product.
  LinearProducts(ThreadPool& pool, int64_t cols) : pool_(pool), cols_(cols) {}

  // Adds y = x W^T + bias, and runs the products before it where there is no room for more.
  void Add(const PackedMatrix& w, const Activations& x, float* y, int64_t y_stride,
           const float* bias);
  // Runs what was added.
  void Run();

  // Bytes that packed activations take at most in products of up to `cols` inputs, each of up to
  // `max_rows` rows.
  static int64_t PackedBytesAtMost(int64_t max_rows, int64_t cols);

 private:
  using PackedFunction = void (*)(const LinearArgs& args, int64_t panel_begin, int64_t panel_end);
  // What multiplies some rows of activations by one matrix. No initial values, as most of the array
  // is never used.
  struct Product {
    LinearPlan plan;
    LinearArgs args;
    PackedFunction packed;  // null: multiplies the activations as they lie
    int64_t rows;
    int64_t panels;
    int64_t panels_per_unit;
    int64_t row_units;
    int64_t packed_offset;      // of its activations in the scratch memory
    int64_t pack_units_before;  // of the products before it
    int64_t units_before;
  };
  static constexpr int64_t kMaxProducts = 128;

  void AddRows(const LinearPlan& plan, const LinearArgs& args, PackedFunction packed, int64_t rows);
  void RunUnit(const Product& product, int64_t unit, std::byte* scratch) const;

  ThreadPool& pool_;
  int64_t cols_;
  int64_t count_ = 0;
  int64_t packed_rows_ = 0;
  int64_t packed_bytes_ = 0;
  int64_t pack_units_ = 0;
  int64_t units_ = 0;
  std::array<Product, kMaxProducts> products_;
};

}  // namespace sluice::kernels
