// Rounding of weights to the codes and scales of a narrow format.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/data_format.h"

namespace sluice {

// How numbers become codes of a format.
struct Encoding {
  DataFormat format;  // scale_type: as the scales are written
  // w / scale is rounded to BF16 before it is rounded to the code, as tools do that work in the
  // model's type.
  bool rounds_quotient = false;
  bool keeps_negative_zero = true;  // of E2M1
};

// How the scales of groups of 4-bit numbers are chosen: by the largest number of the group, as the
// tools do it, or the one among its neighbours that leaves the least squared error.
enum class GroupScales { kAmax, kLeastSquares };

// The scale of a whole tensor, from its largest magnitude (as float32): amax / 448 for FP8, the
// second scale amax / (6 * 448) for NVFP4. A tensor of zeros has 1.
float TensorScale(const Encoding& encoding, float amax);

// Codes and scales of `rows` rows of w [rows, cols], which begin at a block's first row where there
// are blocks. `tensor_scale`: of kPerTensor, or the second scale. codes: dense rows as they are
// stored; scales: dense, of encoding.format.scale_type; nothing is written where the layout is
// kPerTensor. REQUIRES: cols is a multiple of the group size.
void EncodeRows(const Encoding& encoding, GroupScales group_scales, const float* w, int64_t rows,
                int64_t cols, float tensor_scale, std::byte* codes, std::byte* scales);

// Writes a number in one of the types F32 and BF16; returns its bytes.
int64_t WriteNumber(ElementType type, float value, std::byte* out);
// The number as that type holds it.
float RoundNumber(ElementType type, float value);

}  // namespace sluice
