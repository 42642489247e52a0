// Number format of a stored tensor.
#pragma once

#include "tensor/element_type.h"

namespace sluice {

// Describes a stored weight: plain numbers, or codes with scales. The value of element [n, k] of a
// matrix [out, in] is data[n, k] * scale[...] * second_scale; scale_layout determines the scale.
// For kInt4, the code minus the zero point takes the place of data[n, k].
struct DataFormat {
  enum class ScaleLayout : uint8_t {
    kNone,       // plain numbers
    kPerTensor,  // one scale
    kPerRow,     // [out]
    kPerGroup,   // [out, in / group_size], along the input
    kPerBlock,   // [ceil(out / block_rows), ceil(in / group_size)]
  };

  ElementType type = ElementType::kBF16;
  ScaleLayout scale_layout = ScaleLayout::kNone;
  ElementType scale_type = ElementType::kF32;
  int group_size = 0;             // number of inputs per scale (kPerGroup, kPerBlock)
  int block_rows = 0;             // number of output rows per scale (kPerBlock)
  bool has_second_scale = false;  // an additional F32 factor for the whole tensor (NVFP4)
  bool has_zero_points = false;   // kInt4: one zero point per scale; if false, all are 8
  bool has_input_order = false;   // groups (kInt4, kI8) consist of permuted inputs

  friend bool operator==(const DataFormat&, const DataFormat&) = default;
};

}  // namespace sluice
