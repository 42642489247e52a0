// Computes memory traffic and operations of operators.
#pragma once

#include <cstdint>
#include <functional>

#include "models/program/program.h"

namespace sluice::program {

// The cost of an operator in a step with few rows, which reads weights once. Excludes data that
// operators pass to each other, which stays in the processor's caches.
struct Cost {
  int64_t weight_bytes = 0;         // bytes of weights that a step of one row reads
  int64_t row_operations = 0;       // floating-point operations per row
  int64_t position_bytes = 0;       // bytes of keys and values, per position that a row attends to
  int64_t position_operations = 0;  // operations per row and position that it attends to

  Cost& operator+=(const Cost& other);
};

// Returns the bytes of a matrix in memory.
using MatrixBytes = std::function<int64_t(const kernels::PackedMatrix&)>;

// Returns the cost of one operator. `kv_bytes`: bytes per element of a key or value.
Cost CostOf(const Program& program, const Op& op, const MatrixBytes& bytes_of, int64_t kv_bytes);
// Returns the total cost of all operators.
Cost CostOf(const Program& program, const MatrixBytes& bytes_of, int64_t kv_bytes);

}  // namespace sluice::program
