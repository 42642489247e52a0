// Number format of a stored weight tensor.
#pragma once

#include "tensor/element_type.h"

namespace sluice {

// Describes a stored weight: plain numbers, or codes with scales. Element [n, k] of a matrix [out,
// in] has the value data[n, k] * scale[...] * second_scale, where scale_layout determines which
// scale applies. For kInt4, (code - zero point) replaces data[n, k].
struct DataFormat {
  enum class ScaleLayout : uint8_t {
    kNone,       // plain numbers
    kPerTensor,  // one scale for the tensor
    kPerRow,     // scales [out]
    kPerGroup,   // scales [out, in / group_size]: groups of inputs
    kPerBlock,   // scales [ceil(out / block_rows), ceil(in / group_size)]
  };

  ElementType type = ElementType::kBF16;
  ScaleLayout scale_layout = ScaleLayout::kNone;
  ElementType scale_type = ElementType::kF32;
  int group_size = 0;             // number of inputs per scale (kPerGroup, kPerBlock)
  int block_rows = 0;             // number of output rows per scale (kPerBlock)
  bool has_second_scale = false;  // NVFP4: an additional F32 factor for the whole tensor
  bool has_zero_points = false;   // kInt4: each scale has a zero point; if false, all zero points
                                  // are 8
  bool has_input_order = false;   // kInt4, kI8: groups consist of permuted inputs

  friend bool operator==(const DataFormat&, const DataFormat&) = default;
};

}  // namespace sluice
