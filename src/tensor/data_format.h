// Number format of a stored tensor.
#pragma once

#include "tensor/element_type.h"

namespace sluice {

// Describes every stored weight: plain numbers, or narrow numbers with scales. The value of element
// [n, k] of a matrix [out, in] is data[n, k] * scale[...] * second_scale, where scale_layout
// determines the scale. A code of kInt4 stands for code - zero point.
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
  int group_size = 0;             // input elements a scale covers (kPerGroup, kPerBlock)
  int block_rows = 0;             // output rows a scale covers (kPerBlock)
  bool has_second_scale = false;  // an additional F32 factor of the whole tensor (NVFP4)
  bool has_zero_points = false;   // of kInt4: one for each scale; without, all are 8
  bool has_input_order = false;   // groups (kInt4, kI8) take their inputs in an order of their own

  friend bool operator==(const DataFormat&, const DataFormat&) = default;
};

}  // namespace sluice
