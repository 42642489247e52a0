// How the inputs (activations) of a quantized linear layer are rounded.
#pragma once

#include <cstdint>

namespace sluice {

struct ActivationFormat {
  enum class Kind : uint8_t {
    kNone,          // not rounded
    kFp8Static,     // E4M3 of x / input_scale; the checkpoint has input_scale per layer
    kFp8PerToken,   // E4M3 with one scale per row, amax / 448
    kFp8PerGroup,   // like kFp8PerToken, with one scale per `group_size` inputs of a row
    kNvfp4,         // E2M1 with an E4M3 scale per 16 inputs, times the layer's global scale
    kMxfp4,         // E2M1 with an E8M0 scale per 32 inputs
    kInt8PerToken,  // round(x / scale), scale = amax / 127 of the row
    kInt8Static,    // round(x / input_scale) + zero_point, in [-128, 127]
  };

  Kind kind = Kind::kNone;
  int group_size = 0;
  int zero_point = 0;      // only for kInt8Static
  float largest_amax = 0;  // only for kFp8PerToken: amax of a row is limited to this; 0: no limit

  friend bool operator==(const ActivationFormat&, const ActivationFormat&) = default;
};

}  // namespace sluice
