// How the CPU rounds what goes into linear layers, and how much of it at once.
#pragma once

#include <cstdint>

#include "models/model.h"
#include "tensor/activation_format.h"

namespace sluice {

// How a linear layer's inputs are rounded before the product. The larger numbers need more memory.
enum class InputRounding : uint8_t {
  kNone,  // nothing
  kInt8,  // they become integers with a scale a row
  kF32,   // they are rounded to a narrow format and written as F32
};

// The rounding that the options select for inputs that a scheme rounds to `format`. INT8 inputs are
// both the format's own and the fastest, so they are the default where products are not in F32;
// other formats are rounded to on request alone.
InputRounding RoundingOf(const ActivationFormat& format, const ModelOptions& options);

// The widest input of any product, with what a drafting head has before its layers.
int64_t WidestInputOf(const DecoderSpec& spec, const ModelOptions& options);

// The most pairs of a row and an expert that are computed at once in steps of up to `max_rows`
// rows, each of which goes through `top_k` experts; 0 where there are none.
int64_t MostExpertPairs(int64_t top_k, int64_t max_rows);

}  // namespace sluice
