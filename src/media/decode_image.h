// Images from bytes: PNG, JPEG, WebP, GIF (its first frame) and BMP, within limits.
//
// The pixels are those that Pillow 13 decodes: a file's EXIF orientation is applied, alpha is laid
// on a background (white), palettes are looked up, 16-bit gray is clipped at 255, CMYK is converted
// as Adobe writes it, color profiles and gamma are ignored. A file that ends early is an error,
// never half an image.
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

// "PNG", "JPEG", ...
std::string_view ImageFormatName(ImageFormat format);

struct ImageLimits {
  // Twice what Pillow warns of: larger images are refused from their header alone.
  int64_t max_pixels = 178'956'970;
  // What lies under pixels that are not opaque: red, green, blue.
  std::array<uint8_t, 3> background{255, 255, 255};
  // A decoder that works longer than this gives up; checked between rows or passes.
  std::chrono::milliseconds max_time{20'000};
};

struct ImageHeader {
  ImageFormat format = ImageFormat::kPng;
  int width = 0;        // as stored, before it is turned
  int height = 0;       // as stored
  int orientation = 1;  // of EXIF: 1 to 8
  int64_t decode_bytes =
      0;  // the most that DecodeImage() allocates at one time, its result included
};

// Reads the header alone; allocates next to nothing. kInvalidArgument: bytes that are no image of a
// known format, a damaged header, more pixels than the limit.
Result<ImageHeader> ReadImageHeader(std::string_view bytes, const ImageLimits& limits = {});

// Decodes an image whose header was read with the same limits. Thread safe. kInvalidArgument:
// damaged or cut bytes, or too much work. Runs for at most limits.max_time.
Result<Image> DecodeImage(std::string_view bytes, const ImageHeader& header,
                          const ImageLimits& limits = {});

}  // namespace sluice
