// Converts pixel bytes to a tower's input values.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "media/image.h"

namespace sluice {

// The value of each byte in each channel. A table is exact, because processors scale and normalize
// each channel separately.
class PixelTable {
 public:
  struct Settings {
    bool rescale = true;
    double rescale_factor = 1.0 / 255.0;
    bool normalize = true;
    std::array<double, 3> mean{0.5, 0.5, 0.5};
    std::array<double, 3> deviation{0.5, 0.5, 0.5};
    // Whether to compute each step in bfloat16: scale, subtract, divide. If not, steps are in
    // float32; if both scaling and normalization are requested, mean and deviation are scaled, not
    // the byte.
    bool in_bfloat16 = false;
  };
  explicit PixelTable(const Settings& settings);

  float At(int channel, uint8_t byte) const { return values_[channel][byte]; }

  // Writes [3, height, width] at `out`.
  void WritePlanes(const Image& image, float* out) const;

 private:
  std::array<std::array<float, 256>, 3> values_{};
};

// Each function below writes patches of an image whose sides are multiples of `patch`, in a layout
// of ProcessedImage::values.

// Writes [rows * columns, patch, patch, 3], row by row.
void WriteChannelLastPatches(const Image& image, const PixelTable& table, int patch, float* out);

// Writes [rows * columns, 3, frames, patch, patch]; all frames are the same. Patches are in blocks
// of merge x merge: block row, block column, row and column within the block. With merge 1, they
// are row by row.
void WriteBlockPatches(const Image& image, const PixelTable& table, int patch, int merge,
                       int frames, float* out);

}  // namespace sluice
