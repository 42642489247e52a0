// Encodes weights in a narrow format as codes and scales.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/data_format.h"

namespace sluice {

// The details of encoding in a format.
struct Encoding {
  DataFormat format;  // its scale_type is the type of the written scales
  // Whether to round w / scale to BF16 before rounding it to a code, like tools that compute in the
  // model's type.
  bool rounds_quotient = false;
  bool keeps_negative_zero = true;  // only for E2M1
};

// How the scale of a group of 4-bit numbers is chosen. kAmax: from the group's largest magnitude,
// as the usual tools do. kLeastSquares: the scale with the least squared error, among scales near
// kAmax's.
enum class GroupScales { kAmax, kLeastSquares };

// The scale of a whole tensor, computed in float32 from its largest magnitude `amax`: amax / 448
// for FP8. For NVFP4 it is the second scale, amax / (6 * 448). 1 if the tensor is all zeros.
float TensorScale(const Encoding& encoding, float amax);

// Encodes rows of w [rows, cols], F32. With block scales the first row must begin a block.
// `tensor_scale`: the scale of kPerTensor, or NVFP4's second scale. `codes`: contiguous rows in
// storage layout. `scales`: contiguous, in encoding.format.scale_type; not written for kPerTensor.
// REQUIRES: cols is a multiple of the group size.
void EncodeRows(const Encoding& encoding, GroupScales group_scales, const float* w, int64_t rows,
                int64_t cols, float tensor_scale, std::byte* codes, std::byte* scales);

// Writes a number as F32 or BF16. Returns the number of bytes written.
int64_t WriteNumber(ElementType type, float value, std::byte* out);
// Rounds a number to F32 or BF16.
float RoundNumber(ElementType type, float value);

}  // namespace sluice
