// A decoded image, the only representation of pixels that parts of the program share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice {

// Plain data; may be moved between threads.
struct Image {
  int width = 0;   // pixels, >= 1
  int height = 0;  // pixels, >= 1
  // [height, width, 3]: red, green and blue of each pixel, rows from the top, without padding.
  std::vector<uint8_t> rgb;

  const uint8_t* row(int y) const { return rgb.data() + static_cast<size_t>(y) * width * 3; }
};

}  // namespace sluice
