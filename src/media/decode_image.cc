#include "media/decode_image.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "media/decoders.h"

namespace sluice {
namespace {

using Mode = StoredPixels::Mode;

struct FormatFunctions {
  ImageFormat format;
  std::string_view name;
  Result<StoredHeader> (*read_header)(std::string_view);
  Result<StoredPixels> (*decode)(std::string_view, DecodeDeadline);
};

constexpr FormatFunctions kFormats[] = {
    {ImageFormat::kPng, "PNG", ReadPngHeader, DecodePng},
    {ImageFormat::kJpeg, "JPEG", ReadJpegHeader, DecodeJpeg},
    {ImageFormat::kWebp, "WebP", ReadWebpHeader, DecodeWebp},
    {ImageFormat::kGif, "GIF", ReadGifHeader, DecodeGif},
    {ImageFormat::kBmp, "BMP", ReadBmpHeader, DecodeBmp},
};

const FormatFunctions& FunctionsOf(ImageFormat format) {
  const auto* found = std::ranges::find(kFormats, format, &FormatFunctions::format);
  CHECK(found != std::end(kFormats));
  return *found;
}

// Returns the format according to the first bytes; file names and media types are ignored.
std::optional<ImageFormat> FormatOf(std::string_view bytes) {
  if (bytes.starts_with("\x89PNG\r\n\x1a\n")) return ImageFormat::kPng;
  if (bytes.starts_with("\xFF\xD8\xFF")) return ImageFormat::kJpeg;
  if (bytes.size() >= 12 && bytes.starts_with("RIFF") && bytes.substr(8, 4) == "WEBP")
    return ImageFormat::kWebp;
  if (bytes.starts_with("GIF87a") || bytes.starts_with("GIF89a")) return ImageFormat::kGif;
  if (bytes.starts_with("BM")) return ImageFormat::kBmp;
  return std::nullopt;
}

// Returns product / 255, rounded to nearest, where product = a * b with a, b in [0, 255].
uint32_t DivideBy255(uint32_t product) {
  const uint32_t rounded = product + 128;
  return ((rounded >> 8) + rounded) >> 8;
}

void LayOn(const std::array<uint8_t, 3>& background, const uint8_t* color, uint32_t alpha,
           uint8_t* out) {
  for (int c = 0; c < 3; ++c) {
    out[c] = static_cast<uint8_t>(DivideBy255(background[c] * (255 - alpha) + color[c] * alpha));
  }
}

void FromCmyk(const uint8_t* in, uint8_t* out) {
  const uint32_t light = 255 - in[3];
  for (int c = 0; c < 3; ++c) out[c] = static_cast<uint8_t>(light - DivideBy255(in[c] * light));
}

// Converts one pixel of `pixels` to RGB.
void ConvertPixel(const StoredPixels& pixels, const std::array<uint8_t, 3>& background,
                  const uint8_t* in, uint8_t* out) {
  switch (pixels.mode) {
    case Mode::kGray:
    case Mode::kGrayAlpha: {
      const uint8_t color[3] = {in[0], in[0], in[0]};
      const bool clear = pixels.clear_color && (*pixels.clear_color)[0] == in[0];
      LayOn(background, color, pixels.mode == Mode::kGrayAlpha ? in[1] : clear ? 0 : 255, out);
      return;
    }
    case Mode::kRgb: {
      const bool clear = pixels.clear_color && std::equal(in, in + 3, pixels.clear_color->begin());
      LayOn(background, in, clear ? 0 : 255, out);
      return;
    }
    case Mode::kRgba: LayOn(background, in, in[3], out); return;
    case Mode::kIndexed: {
      const std::array<uint8_t, 4>& entry = pixels.palette[in[0]];
      LayOn(background, entry.data(), entry[3], out);
      return;
    }
    case Mode::kCmyk: FromCmyk(in, out); return;
  }
}

Image ToRgb(StoredPixels pixels, int width, int height, const std::array<uint8_t, 3>& background) {
  Image image{width, height, {}};
  const size_t count = static_cast<size_t>(width) * height;
  const int channels = ChannelsOf(pixels.mode);
  CHECK(pixels.data.size() == count * channels);
  if (pixels.mode == Mode::kRgb && !pixels.clear_color) {
    image.rgb = std::move(pixels.data);
    return image;
  }
  image.rgb.resize(count * 3);
  for (size_t i = 0; i < count; ++i)
    ConvertPixel(pixels, background, pixels.data.data() + i * channels, image.rgb.data() + i * 3);
  return image;
}

// Rotates and mirrors an image from the given EXIF orientation to orientation 1.
Image Turn(Image image, int orientation) {
  if (orientation == 1) return image;
  const bool swaps = orientation >= 5;
  // For these orientations, columns or rows of the result are read from the end of the source's.
  const bool from_right =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_bottom =
      orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Image turned{swaps ? image.height : image.width, swaps ? image.width : image.height, {}};
  turned.rgb.resize(image.rgb.size());
  uint8_t* out = turned.rgb.data();
  for (int y = 0; y < turned.height; ++y) {
    for (int x = 0; x < turned.width; ++x, out += 3) {
      const int column = swaps ? y : x;
      const int row = swaps ? x : y;
      const uint8_t* in = image.row(from_bottom ? image.height - 1 - row : row) +
                          3 * static_cast<size_t>(from_right ? image.width - 1 - column : column);
      std::copy_n(in, 3, out);
    }
  }
  return turned;
}

}  // namespace

int ChannelsOf(Mode mode) {
  switch (mode) {
    case Mode::kGray:
    case Mode::kIndexed: return 1;
    case Mode::kGrayAlpha: return 2;
    case Mode::kRgb: return 3;
    case Mode::kRgba:
    case Mode::kCmyk: return 4;
  }
  return 4;
}

std::string_view ImageFormatName(ImageFormat format) {
  return FunctionsOf(format).name;
}

tl::unexpected<Error> DamagedImage(ImageFormat format, std::string_view detail) {
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("damaged {} image: {}", ImageFormatName(format), detail));
}

Result<ImageHeader> ReadImageHeader(std::string_view bytes, const ImageLimits& limits) {
  const std::optional<ImageFormat> format = FormatOf(bytes);
  if (!format) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("expected a PNG, JPEG, WebP, GIF or BMP image, found {}",
                    bytes.empty() ? "no bytes"
                                  : fmt::format("{} bytes that begin otherwise", bytes.size())));
  }
  ASSIGN_OR_RETURN(const StoredHeader stored, FunctionsOf(*format).read_header(bytes));
  if (stored.width < 1 || stored.height < 1) {
    return DamagedImage(*format,
                        fmt::format("its size is {} x {} pixels", stored.width, stored.height));
  }
  if (stored.width > limits.max_pixels / stored.height) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "the image has {} x {} pixels; at most {} pixels are decoded: send a smaller one",
            stored.width, stored.height, limits.max_pixels));
  }
  ImageHeader header{*format, static_cast<int>(stored.width), static_cast<int>(stored.height),
                     ReadOrientation(stored.exif, stored.xmp), 0};
  // The peak is reached by the stored pixels and RGB together, or by RGB and its rotated copy.
  const int64_t rgb_bytes = 3 * stored.width * stored.height;
  header.decode_bytes =
      std::max(stored.work_bytes + rgb_bytes, header.orientation == 1 ? 0 : 2 * rgb_bytes);
  return header;
}

Result<Image> DecodeImage(std::string_view bytes, const ImageHeader& header,
                          const ImageLimits& limits) {
  const DecodeDeadline deadline = std::chrono::steady_clock::now() + limits.max_time;
  ASSIGN_OR_RETURN(StoredPixels pixels, FunctionsOf(header.format).decode(bytes, deadline));
  const size_t count = static_cast<size_t>(header.width) * header.height;
  if (pixels.data.size() != count * ChannelsOf(pixels.mode))
    return DamagedImage(header.format, "it has two sizes");
  return Turn(ToRgb(std::move(pixels), header.width, header.height, limits.background),
              header.orientation);
}

}  // namespace sluice
