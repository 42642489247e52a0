// What an operator reads and computes.
#pragma once

#include <cstdint>
#include <functional>

#include "models/program/program.h"

namespace sluice::program {

// The cost of a step of few rows, which reads weights once. Sums over a step's rows do not count
// traffic between operators, which stays in the processor's caches.
struct Cost {
  int64_t weight_bytes = 0;         // read by a step of one row
  int64_t row_operations = 0;       // of floating point, of each row
  int64_t position_bytes = 0;       // of keys and values, of each position that a row sees
  int64_t position_operations = 0;  // the same

  Cost& operator+=(const Cost& other);
};

// Bytes of a matrix in memory.
using MatrixBytes = std::function<int64_t(const kernels::PackedMatrix&)>;

// `kv_bytes`: of one number of a key or value.
Cost CostOf(const Program& program, const Op& op, const MatrixBytes& bytes_of, int64_t kv_bytes);
// The cost of all operators.
Cost CostOf(const Program& program, const MatrixBytes& bytes_of, int64_t kv_bytes);

}  // namespace sluice::program
