// Selects the functions for a product, and computes one unit of its work.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"
#include "kernels/matrix.h"

namespace sluice::kernels {

// The functions for products of inputs and weights of the given types.
struct LinearPlan {
  LinearFunction* function;
  // Expands weights that are stored as codes, with F32 or BF16 inputs; otherwise null.
  ExpandFunction* expand;
  int64_t block_inputs;  // number of inputs per block that has a separate scale; 0: no blocks
  bool folds_blocks;     // whether `function` itself applies the block scales
};

LinearPlan PlanLinear(const PackedMatrix& w, const Activations& x);

// The arguments of a product, except for its scratch memory.
LinearArgs LinearArgsOf(const LinearPlan& plan, const PackedMatrix& w, const Activations& x,
                        float* y, int64_t y_stride, const float* bias);

// Scratch bytes that a unit needs for products of at most `cols` inputs; a multiple of 64.
int64_t UnitScratchBytes(int64_t cols);

// Whether `function` itself expands the codes for products of `rows` rows.
bool ExpandsItself(const LinearPlan& plan, int64_t rows);

// Computes rows [row_begin, row_end) of the outputs of panels [panel_begin, panel_end): at most
// kRowsPerUnit rows and, unless `function` itself expands the codes, at most
// Kernels().panels_per_unit panels. scratch: 64-byte aligned.
void ComputeUnit(const LinearPlan& plan, const LinearArgs& args, int64_t row_begin, int64_t row_end,
                 int64_t panel_begin, int64_t panel_end, std::byte* scratch);

// Scratch memory owned by the calling thread: `shared_bytes` (a multiple of 64) for all threads,
// then UnitScratchBytes for each. Grows to the largest size requested.
std::byte* LinearScratch(int64_t shared_bytes, int64_t cols, int num_threads);

}  // namespace sluice::kernels
