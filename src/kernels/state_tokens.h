// The inputs that update a recurrent state. This is a separate header without the standard library,
// which sources compiled for one instruction set must not include.
#pragma once

#include <stdint.h>

namespace sluice::kernels {

// Inputs of one head for consecutive tokens of one sequence.
struct StateTokens {
  const float* q = nullptr;  // [rows, key_dim], key_stride elements apart
  const float* k = nullptr;
  int64_t key_stride = 0;
  float* v = nullptr;  // [rows, head_dim], rows value_stride elements apart; the results replace it
  int64_t value_stride = 0;
  const float* decay = nullptr;  // [rows], gate_stride elements apart
  const float* rate = nullptr;
  // Whether decay is [rows, key_dim], one element for each row of the state.
  bool decays_keys = false;
  int64_t gate_stride = 0;
  int64_t rows = 0;
};

}  // namespace sluice::kernels
