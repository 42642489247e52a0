// How the CPU rounds inputs of linear layers, and how many rows of experts it computes in one pass.
#pragma once

#include <cstdint>

#include "models/model.h"
#include "tensor/activation_format.h"

namespace sluice {

// How a linear layer's inputs are rounded before the product. Values are in ascending order of the
// memory that they need.
enum class InputRounding : uint8_t {
  kNone,  // not rounded
  kInt8,  // INT8 with one scale per row
  kF32,   // rounded to a narrow format, stored as F32
};

// Returns the rounding of inputs whose scheme rounds them to `format`, under these options. If
// products are not in F32, rounding to INT8 is the default for schemes with INT8 inputs: it is the
// scheme's own format, and the fastest. Other formats are used only on request.
InputRounding RoundingOf(const ActivationFormat& format, const ModelOptions& options);

// Returns the maximum number of (row, expert) pairs that are computed together in steps of up to
// `max_rows` rows with `top_k` experts each; 0 without experts.
int64_t MostExpertPairs(int64_t top_k, int64_t max_rows);

}  // namespace sluice
