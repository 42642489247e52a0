// What the fuzz targets of the decoders share: whatever the bytes, an image of its own size or an
// error, within the memory that the header told. Fuzz targets alone include this.
#pragma once

#include <cstdint>

#include "base/fuzz_input.h"
#include "media/decode_image.h"

namespace sluice::fuzz {

// Decodes bytes that are given the beginning of a format, so that a run stays with one decoder.
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
