// How a matrix meets its inputs, and one unit of that work.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"
#include "kernels/matrix.h"

namespace sluice::kernels {

// Rows that one unit of work multiplies with its panels. More would only help a matrix of few
// panels less to spread over many threads; a multiple of every kernel's tile height.
constexpr int64_t kRowsPerUnit = 768;

// The functions that multiply by a matrix of some format.
struct LinearPlan {
  LinearFunction* function;
  ExpandFunction* expand;  // of narrow formats that meet F32 or BF16 inputs; else null
  int64_t block_inputs;    // inputs of a block whose sum has a scale; 0: no blocks
  bool folds_blocks;       // the function multiplies the sums of blocks by their scales
};

LinearPlan PlanLinear(const PackedMatrix& w, const Activations& x);

// The arguments of a product, but for scratch.
LinearArgs LinearArgsOf(const LinearPlan& plan, const PackedMatrix& w, const Activations& x,
                        float* y, int64_t y_stride, const float* bias);

// Scratch that a unit of products of at most `cols` inputs needs, a multiple of 64.
int64_t UnitScratchBytes(int64_t cols);

// Computes rows [row_begin, row_end) of the outputs of panels [panel_begin, panel_end): at most
// Kernels().panels_per_unit panels and kRowsPerUnit rows. scratch: 64-byte aligned.
void ComputeUnit(const LinearPlan& plan, const LinearArgs& args, int64_t row_begin, int64_t row_end,
                 int64_t panel_begin, int64_t panel_end, std::byte* scratch);

// Memory of the calling thread for its products: `shared_bytes` (a multiple of 64) for all threads,
// then UnitScratchBytes for each. Grows to the largest that was asked for.
std::byte* LinearScratch(int64_t shared_bytes, int64_t cols, int num_threads);

}  // namespace sluice::kernels
