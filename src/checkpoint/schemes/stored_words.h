// Finds the tensors of a linear layer whose integer codes (INT4, INT8) share 32-bit words: codes,
// scales, zero points, group indices.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/schemes/linear_layout.h"

namespace sluice {

// Returns the weight of `module`, whose layout is plan.layout.
Result<StoredLinear> FindStoredWords(const Checkpoint& checkpoint, const std::string& module,
                                     int64_t rows, int64_t cols, const ModulePlan& plan);

}  // namespace sluice
