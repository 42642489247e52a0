// How the inputs of a quantized linear layer are rounded.
#pragma once

#include <cstdint>

namespace sluice {

struct ActivationFormat {
  enum class Kind : uint8_t {
    kNone,          // not rounded
    kFp8Static,     // E4M3 of x / input_scale; the scale is stored with the layer
    kFp8PerToken,   // E4M3 with a scale amax / 448 per row
    kFp8PerGroup,   // as kFp8PerToken, with a scale per `group_size` inputs of a row
    kNvfp4,         // E2M1 with an E4M3 scale per group of 16, times the layer's global scale
    kMxfp4,         // E2M1 with an E8M0 scale per group of 32
    kInt8PerToken,  // integers of x / scale, scale = amax / 127 of the row
    kInt8Static,    // integers in [-128, 127] of x / input_scale + zero_point
  };

  Kind kind = Kind::kNone;
  int group_size = 0;
  int zero_point = 0;      // for kInt8Static
  float largest_amax = 0;  // for kFp8PerToken: upper limit of a row's amax; 0: no limit

  friend bool operator==(const ActivationFormat&, const ActivationFormat&) = default;
};

}  // namespace sluice
