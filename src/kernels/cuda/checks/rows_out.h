// Rows that a kernel writes as RowsOut asks: in F32 against exact values, and in every other type
// against its own F32 rows, rounded as the CPU rounds them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/cuda/checks/checked_device.h"
#include "kernels/cuda/checks/comparison.h"
#include "kernels/cuda/device_kernels.h"

namespace sluice::checks {

// The exact values of a row's numbers, and the bounds of what the kernel may be off by in F32.
struct ExactRows {
  int64_t rows = 0, cols = 0;
  std::vector<double> values, errors;  // [rows, cols]
};

// Launches the kernel for rows [first, first + count) of its inputs.
using LaunchRows = std::function<void(int64_t first, int64_t count, const device::RowsOut& out)>;

// Compares rows of every type: F32, BF16, E4M3 with a static scale and with a scale a token, and
// NVFP4 where rows are of whole groups. A row alone must have the bits that it has among others.
// Returns the F32 rows.
std::vector<float> CompareRows(CaseMemory& memory, Comparison& comparison, const ExactRows& exact,
                               const LaunchRows& launch);

// `rows` as RowScale::kNvF4 writes them, but with the tensor's scale. `static_scale`: a power of
// two, so that the scaled numbers are exact.
std::vector<float> RoundedToNvF4(const std::vector<float>& rows, int64_t cols, float static_scale);

}  // namespace sluice::checks
