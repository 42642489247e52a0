// Checks rows that a kernel writes as RowsOut requests: F32 rows against exact values, and every
// other type against the kernel's own F32 rows, rounded by the CPU.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/cuda/checks/checked_device.h"
#include "kernels/cuda/checks/comparison.h"
#include "kernels/cuda/device_kernels.h"

namespace sluice::checks {

// The exact values of rows, and the bounds of the kernel's error in F32.
struct ExactRows {
  int64_t rows = 0, cols = 0;
  std::vector<double> values, errors;  // [rows, cols]
};

// Launches the kernel for rows [first, first + count) of its inputs.
using LaunchRows = std::function<void(int64_t first, int64_t count, const device::RowsOut& out)>;

// Compares rows of every type: F32, BF16, E4M3 with a static scale and with a scale per token, and
// NVFP4 if rows consist of whole groups. If `packs`, the kernel also packs the NVFP4 rows
// (RowsOut::codes). A row computed alone must be bit-identical to the same row among other rows.
// Returns the F32 rows.
std::vector<float> CompareRows(CaseMemory& memory, Comparison& comparison, const ExactRows& exact,
                               const LaunchRows& launch, bool packs = false);

// Returns `rows` as RowScale::kNvF4 rounds them, multiplied by `static_scale`. REQUIRES:
// static_scale is a power of two, so that the scaled numbers are exact.
std::vector<float> RoundedToNvF4(const std::vector<float>& rows, int64_t cols, float static_scale);
// Returns `rows` as RowScale::kMxF4 rounds them. REQUIRES: rows of whole groups.
std::vector<float> RoundedToMxF4(const std::vector<float>& rows, int64_t cols);

}  // namespace sluice::checks
