// Shared code of the decoders' fuzz targets. Any bytes must give an error or an image of the
// header's size, within the memory that the header predicted. Only for fuzz targets.
#pragma once

#include <cstdint>

#include "base/fuzz_input.h"
#include "media/decode_image.h"

namespace sluice::fuzz {

// Decodes bytes that are made to begin with a format's signature, so that a run tests one decoder.
inline int DecodeAs(std::string_view beginning, const uint8_t* data, size_t size) {
  std::string bytes(Text(data, size));
  if (bytes.size() > beginning.size()) bytes.replace(0, beginning.size(), beginning);
  ImageLimits limits;
  limits.max_pixels = 1 << 20;
  const Result<ImageHeader> header = ReadImageHeader(bytes, limits);
  if (!header) return 0;
  Require(header->width >= 1 && header->height >= 1 && header->decode_bytes > 0);
  const Result<Image> image = DecodeImage(bytes, *header, limits);
  if (!image) return 0;
  Require(image->rgb.size() == static_cast<size_t>(image->width) * image->height * 3);
  Require(static_cast<int64_t>(image->rgb.size()) <= header->decode_bytes);
  return 0;
}

}  // namespace sluice::fuzz
