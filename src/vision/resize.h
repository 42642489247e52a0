// Resizing of RGB bytes, equal byte by byte to torchvision's antialiased filters on uint8 tensors
// (torch 2.x on a CPU).
//
// Two passes, across first, with bytes in between. Each output is a sum of products of bytes and
// 16-bit integer weights: the weights of a filter are computed in float64, divided by their sum,
// and scaled by the largest power of two with which the largest of them stays below 2^15 (at most
// 2^22). Pillow uses 22 bits of precision always, and therefore differs by one or two in some
// bytes.
#pragma once

#include <cstdint>

#include "media/image.h"

namespace sluice {

enum class ResizeFilter {
  kBilinear,  // triangle, support 1
  kBicubic,   // a = -0.5, support 2
};

// REQUIRES: width and height >= 1. An image that has this size already is copied.
Image ResizeImage(const Image& image, int width, int height, ResizeFilter filter);

// The most bytes that ResizeImage() allocates, its result included.
int64_t ResizeBytes(int64_t from_width, int64_t from_height, int64_t width, int64_t height);

}  // namespace sluice
