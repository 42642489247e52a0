// The rows that a recurrent state is updated by: apart, as the kernels' sources for instruction
// sets include nothing of the standard library.
#pragma once

#include <stdint.h>

namespace sluice::kernels {

// What the tokens of one sequence bring to one head, in rows that follow each other.
struct StateTokens {
  const float* q = nullptr;  // [rows, key_dim], key_stride numbers apart
  const float* k = nullptr;
  int64_t key_stride = 0;
  float* v = nullptr;  // [rows, head_dim], value_stride numbers apart; then the results
  int64_t value_stride = 0;
  const float* decay = nullptr;  // [rows], gate_stride numbers apart
  const float* rate = nullptr;
  bool decays_keys = false;  // decay is [rows, key_dim]: of each row of the matrix
  int64_t gate_stride = 0;
  int64_t rows = 0;
};

}  // namespace sluice::kernels
