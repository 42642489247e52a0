// Resizes RGB images. Results equal those of torchvision's antialiased filters on uint8 tensors
// (torch 2.x on a CPU), byte by byte.
//
// There are two passes, the horizontal one first, with 8-bit intermediate results. Each output is a
// sum of products of bytes and 16-bit integer weights. A filter's weights are computed in float64,
// divided by their sum, and scaled by a power of two: the largest, up to 2^22, that keeps all
// weights below 2^15. Pillow always uses 22 bits of precision, and therefore differs by one or two
// in some bytes.
#pragma once

#include <array>
#include <cstdint>

#include "media/image.h"

namespace sluice {

enum class ResizeFilter {
  kBilinear,  // triangle, support 1
  kBicubic,   // a = -0.5, support 2
  kLanczos,   // sinc(x) sinc(x / 3), support 3
};

// A rectangle in pixels.
struct ImageRegion {
  int left = 0, top = 0, width = 0, height = 0;
};

// Resizes an image. If it already has this size, it is copied. REQUIRES: width and height >= 1.
Image ResizeImage(const Image& image, int width, int height, ResizeFilter filter);

// Computes only a region of ResizeImage's result, with the same bytes. REQUIRES: the region is
// inside that result.
Image ResizeRegion(const Image& image, int width, int height, ResizeFilter filter,
                   const ImageRegion& region);

// Cuts out a region. REQUIRES: it is inside the image.
Image CropImage(const Image& image, const ImageRegion& region);

// Places the image at (left, top) of a larger one of this color. REQUIRES: it fits inside.
Image PadImage(const Image& image, int width, int height, int left, int top,
               const std::array<uint8_t, 3>& color);

// Returns the maximum number of bytes that ResizeImage() allocates, including its result.
int64_t ResizeBytes(int64_t from_width, int64_t from_height, int64_t width, int64_t height);

}  // namespace sluice
