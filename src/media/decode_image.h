// Decodes images: PNG, JPEG, WebP, GIF (first frame) and BMP, within limits.
//
// Pixels equal those of Pillow 13: EXIF orientation is applied, alpha is blended onto a background
// (white), palettes are resolved, 16-bit gray is clipped at 255, CMYK is converted by Adobe's
// convention, color profiles and gamma are ignored. A truncated file is an error, never a partial
// image.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "media/image.h"

namespace sluice {

enum class ImageFormat { kPng, kJpeg, kWebp, kGif, kBmp };

// Returns "PNG", "JPEG", and so on.
std::string_view ImageFormatName(ImageFormat format);

struct ImageLimits {
  // Maximum number of pixels: twice the number at which Pillow warns. Larger images are refused
  // after reading only the header.
  int64_t max_pixels = 178'956'970;
  // Background color under transparent pixels: red, green, blue.
  std::array<uint8_t, 3> background{255, 255, 255};
  // Maximum time of decoding, checked between rows or passes.
  std::chrono::milliseconds max_time{20'000};
};

struct ImageHeader {
  ImageFormat format = ImageFormat::kPng;
  int width = 0;             // width as stored, before orientation is applied
  int height = 0;            // height as stored
  int orientation = 1;       // EXIF orientation, 1 to 8
  int64_t decode_bytes = 0;  // peak allocation of DecodeImage(), including its result
};

// Reads only the header; allocates almost nothing. kInvalidArgument for an unknown format, a
// damaged header, or more pixels than the limit.
Result<ImageHeader> ReadImageHeader(std::string_view bytes, const ImageLimits& limits = {});

// Decodes an image whose header was read with the same limits. Thread safe. kInvalidArgument for
// damaged or truncated data, or if the time is exceeded. Runs for at most limits.max_time.
Result<Image> DecodeImage(std::string_view bytes, const ImageHeader& header,
                          const ImageLimits& limits = {});

}  // namespace sluice
