// Decodes PNG. libpng reads pixels as stored; this file converts palettes, alpha and 16-bit gray,
// as Pillow does.
#include <csetjmp>
#include <cstring>

#include <png.h>

#include "media/byte_order.h"
#include "media/decoders.h"

namespace sluice {
namespace {

constexpr size_t kSignatureBytes = 8;
constexpr size_t kChunkOverhead = 12;  // length, type, checksum
constexpr size_t kMaxChunks = 100'000;
// Maximum number of bytes in a chunk, such as text or a profile.
constexpr png_alloc_size_t kMaxChunkBytes = 8 << 20;

// State of libpng's callbacks. Must be outside the frame that longjmp leaves.
struct PngReading {
  std::string_view bytes;
  size_t at = 0;
  std::jmp_buf on_error;
  char problem[96] = "";
};

void PngError(png_structp png, png_const_charp message) {
  auto* reading = static_cast<PngReading*>(png_get_error_ptr(png));
  std::strncpy(reading->problem, message, sizeof reading->problem - 1);
  std::longjmp(reading->on_error, 1);
}

void PngWarning(png_structp, png_const_charp) {}

void PngRead(png_structp png, png_bytep out, size_t count) {
  auto* reading = static_cast<PngReading*>(png_get_io_ptr(png));
  if (reading->bytes.size() - reading->at < count) png_error(png, "the file is truncated");
  std::memcpy(out, reading->bytes.data() + reading->at, count);
  reading->at += count;
}

// The decoder's state and output. Buffers are allocated between reading steps, so that no C++
// object is created in a frame that longjmp may leave.
struct PngTarget {
  png_structp png = nullptr;
  png_infop info = nullptr;
  int width = 0;
  int height = 0;
  int color_type = 0;
  int bit_depth = 0;
  int channels = 0;  // channels of a row as libpng reads it
  int passes = 1;
};

bool BeginPng(PngReading& reading, PngTarget& target) {
  if (setjmp(reading.on_error)) return false;
  png_set_read_fn(target.png, &reading, PngRead);
  png_set_user_limits(target.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // other code checks sizes
  png_set_chunk_malloc_max(target.png, kMaxChunkBytes);
  png_set_chunk_cache_max(target.png, 1000);
  // Do not store text, profiles and unknown chunks.
  png_set_keep_unknown_chunks(target.png, PNG_HANDLE_CHUNK_NEVER, nullptr, 0);
  png_read_info(target.png, target.info);
  png_uint_32 width = 0;
  png_uint_32 height = 0;
  png_get_IHDR(target.png, target.info, &width, &height, &target.bit_depth, &target.color_type,
               nullptr, nullptr, nullptr);
  target.width = static_cast<int>(width);
  target.height = static_cast<int>(height);
  if (target.color_type == PNG_COLOR_TYPE_PALETTE) {
    png_set_packing(target.png);
  } else if (target.color_type == PNG_COLOR_TYPE_GRAY && target.bit_depth < 8) {
    png_set_expand_gray_1_2_4_to_8(target.png);
  } else if (target.color_type != PNG_COLOR_TYPE_GRAY && target.bit_depth == 16) {
    png_set_strip_16(target.png);
  }
  target.passes = png_set_interlace_handling(target.png);
  png_read_update_info(target.png, target.info);
  target.channels = png_get_channels(target.png, target.info);
  return true;
}

// Reads rows with `channels` bytes per pixel, or two bytes per pixel for 16-bit gray.
bool ReadPngRows(PngReading& reading, PngTarget& target, uint8_t* out, size_t row_bytes,
                 DecodeDeadline deadline) {
  if (setjmp(reading.on_error)) return false;
  for (int pass = 0; pass < target.passes; ++pass) {
    for (int y = 0; y < target.height; ++y) {
      if (y % 64 == 0 && std::chrono::steady_clock::now() > deadline)
        png_error(target.png, "it takes too long");
      png_read_row(target.png, out + row_bytes * y, nullptr);
    }
  }
  return true;
}

void ReadPalette(const PngTarget& target, StoredPixels& pixels) {
  for (int i = 0; i < 256; ++i)
    pixels.palette[i] = {static_cast<uint8_t>(i), static_cast<uint8_t>(i), static_cast<uint8_t>(i),
                         255};
  png_colorp colors = nullptr;
  int count = 0;
  png_get_PLTE(target.png, target.info, &colors, &count);
  for (int i = 0; i < count && i < 256; ++i)
    pixels.palette[i] = {colors[i].red, colors[i].green, colors[i].blue, 255};
  png_bytep alpha = nullptr;
  int alphas = 0;
  if (png_get_tRNS(target.png, target.info, &alpha, &alphas, nullptr) == 0 || alpha == nullptr)
    return;
  for (int i = 0; i < alphas && i < 256; ++i) pixels.palette[i][3] = alpha[i];
}

// Reads the color that tRNS makes transparent, for gray or RGB of at most 8 bits.
void ReadClearColor(const PngTarget& target, StoredPixels& pixels) {
  png_color_16p color = nullptr;
  if (target.bit_depth > 8 ||
      png_get_tRNS(target.png, target.info, nullptr, nullptr, &color) == 0 || color == nullptr)
    return;
  if (pixels.mode == StoredPixels::Mode::kGray) {
    const int step = 255 / ((1 << target.bit_depth) - 1);
    const auto gray = static_cast<uint8_t>(color->gray * step);
    pixels.clear_color = {gray, gray, gray};
  } else if (pixels.mode == StoredPixels::Mode::kRgb) {
    pixels.clear_color = {static_cast<uint8_t>(color->red), static_cast<uint8_t>(color->green),
                          static_cast<uint8_t>(color->blue)};
  }
}

// Converts big-endian 16-bit gray to 8 bits: clipped, not scaled.
void ClipGray16(std::vector<uint8_t>& data) {
  const size_t count = data.size() / 2;
  for (size_t i = 0; i < count; ++i) data[i] = data[2 * i] != 0 ? 255 : data[2 * i + 1];
  data.resize(count);
}

Result<StoredPixels> ReadPng(PngReading& reading, PngTarget& target, DecodeDeadline deadline) {
  if (!BeginPng(reading, target)) return DamagedImage(ImageFormat::kPng, reading.problem);
  StoredPixels pixels;
  using Mode = StoredPixels::Mode;
  const bool palette = target.color_type == PNG_COLOR_TYPE_PALETTE;
  pixels.mode = palette                ? Mode::kIndexed
                : target.channels == 1 ? Mode::kGray
                : target.channels == 2 ? Mode::kGrayAlpha
                : target.channels == 3 ? Mode::kRgb
                                       : Mode::kRgba;
  const bool wide = pixels.mode == Mode::kGray && target.bit_depth == 16;
  const size_t row_bytes = static_cast<size_t>(target.width) * target.channels * (wide ? 2 : 1);
  pixels.data.resize(row_bytes * target.height);
  if (!ReadPngRows(reading, target, pixels.data.data(), row_bytes, deadline)) {
    return DamagedImage(ImageFormat::kPng, reading.problem);
  }
  if (palette) ReadPalette(target, pixels);
  if (wide) ClipGray16(pixels.data);
  ReadClearColor(target, pixels);
  return pixels;
}

}  // namespace

Result<StoredHeader> ReadPngHeader(std::string_view bytes) {
  if (bytes.size() < kSignatureBytes + kChunkOverhead + 13 || bytes.substr(12, 4) != "IHDR") {
    return DamagedImage(ImageFormat::kPng, "it has no header");
  }
  StoredHeader header{Big32(bytes, 16), Big32(bytes, 20), 0, {}, {}};
  if (header.width > INT32_MAX || header.height > INT32_MAX)
    return DamagedImage(ImageFormat::kPng, "its size makes no sense");
  // Memory for up to four bytes per pixel, and for libpng's rows.
  header.work_bytes = BytesOfPixels(header.width, header.height, 4) + 64 * header.width + (1 << 20);
  size_t at = kSignatureBytes;
  for (size_t chunk = 0; chunk < kMaxChunks && bytes.size() - at >= kChunkOverhead; ++chunk) {
    const size_t length = Big32(bytes, at);
    if (length > bytes.size() - at - kChunkOverhead) break;
    const std::string_view type = bytes.substr(at + 4, 4);
    if (type == "eXIf") header.exif = bytes.substr(at + 8, length);
    if (type == "iTXt" && bytes.substr(at + 8, length).starts_with("XML:com.adobe.xmp"))
      header.xmp = bytes.substr(at + 8, length);
    at += length + kChunkOverhead;
  }
  return header;
}

Result<StoredPixels> DecodePng(std::string_view bytes, DecodeDeadline deadline) {
  PngReading reading{bytes, 0, {}, ""};
  PngTarget target;
  target.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reading, PngError, PngWarning);
  if (target.png == nullptr)
    return Fail(ErrorCode::kResourceExhausted, "no memory to decode a PNG image");
  target.info = png_create_info_struct(target.png);
  Result<StoredPixels> pixels = target.info != nullptr
                                    ? ReadPng(reading, target, deadline)
                                    : Result<StoredPixels>(Fail(ErrorCode::kResourceExhausted,
                                                                "no memory to decode a PNG image"));
  png_destroy_read_struct(&target.png, &target.info, nullptr);
  return pixels;
}

}  // namespace sluice
