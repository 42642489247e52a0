// Functions that read headers and decode pixels, for each format. decode_image.cc chooses among
// them and converts the result to RGB.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "media/decode_image.h"

namespace sluice {

// Pixels as stored in the file, one byte per channel, rows from the top, without padding.
struct StoredPixels {
  enum class Mode { kGray, kGrayAlpha, kRgb, kRgba, kIndexed, kCmyk };
  Mode mode = Mode::kRgb;
  std::vector<uint8_t> data;  // [height, width, channels of the mode]
  // kIndexed: red, green, blue, alpha of each index; a gray ramp for indices without an entry, as
  // in Pillow.
  std::array<std::array<uint8_t, 4>, 256> palette{};
  // kGray and kRgb: pixels of exactly this color are transparent.
  std::optional<std::array<uint8_t, 3>> clear_color;
};

// Returns the bytes per pixel in this mode.
int ChannelsOf(StoredPixels::Mode mode);

// Returns the error of all decoders: "a damaged PNG image: DETAIL".
tl::unexpected<Error> DamagedImage(ImageFormat format, std::string_view detail);

// Returns width * height * bytes, or 2^60 if that is more. REQUIRES: arguments within [0, 2^31).
inline int64_t BytesOfPixels(int64_t width, int64_t height, int64_t bytes) {
  constexpr int64_t kMost = int64_t{1} << 60;
  return height != 0 && width > kMost / height / bytes ? kMost : width * height * bytes;
}

// The time after which decoders give up.
using DecodeDeadline = std::chrono::steady_clock::time_point;

// Result of ReadXHeader(): sizes in [1, 2^31), and the memory that decoding needs.
struct StoredHeader {
  int64_t width = 0;
  int64_t height = 0;
  int64_t work_bytes = 0;  // bytes that the decoder allocates, including `data` of its result
  std::string_view exif;   // a TIFF structure in the file, or empty
  std::string_view xmp;    // XMP data in the file, or empty
};

Result<StoredHeader> ReadPngHeader(std::string_view bytes);
Result<StoredHeader> ReadJpegHeader(std::string_view bytes);
Result<StoredHeader> ReadWebpHeader(std::string_view bytes);
Result<StoredHeader> ReadGifHeader(std::string_view bytes);
Result<StoredHeader> ReadBmpHeader(std::string_view bytes);

// Decode an image. REQUIRES: the header was read, and its size is within the limits.
Result<StoredPixels> DecodePng(std::string_view bytes, DecodeDeadline deadline);
Result<StoredPixels> DecodeJpeg(std::string_view bytes, DecodeDeadline deadline);
Result<StoredPixels> DecodeWebp(std::string_view bytes, DecodeDeadline deadline);
Result<StoredPixels> DecodeGif(std::string_view bytes, DecodeDeadline deadline);
Result<StoredPixels> DecodeBmp(std::string_view bytes, DecodeDeadline deadline);

// Returns the value of the tag Orientation, 1 to 8; 1 if it is missing or invalid. `exif`: a TIFF
// structure, optionally preceded by "Exif\0\0". `xmp`: used if `exif` has no such tag.
int ReadOrientation(std::string_view exif, std::string_view xmp);

}  // namespace sluice
