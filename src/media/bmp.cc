// Decodes BMP files of Windows and OS/2: 1 to 32 bits per pixel, palettes, the channel masks that
// Pillow supports, run-length encoding.
#include <algorithm>

#include "media/byte_order.h"
#include "media/decoders.h"

namespace sluice {
namespace {

using Mode = StoredPixels::Mode;

enum BmpCompression : uint32_t { kPlain = 0, kRuns8 = 1, kRuns4 = 2, kMasks = 3 };

// The order of channels in pixels of 16 and 32 bits.
enum class BmpLayout { kBgr555, kBgr565, kBgrx, kXbgr, kXrgb, kBgra, kAbgr, kRgba };

struct BmpInfo {
  int64_t width = 0;
  int64_t height = 0;
  bool from_top = false;
  uint32_t bits = 0;
  uint32_t compression = kPlain;
  BmpLayout layout = BmpLayout::kBgrx;
  size_t palette_at = 0;
  size_t palette_step = 4;
  size_t palette_count = 0;
  size_t data_at = 0;
};

tl::unexpected<Error> DamagedBmp(std::string_view detail) {
  return DamagedImage(ImageFormat::kBmp, detail);
}

Result<BmpLayout> LayoutOfMasks(uint32_t bits, const std::array<uint32_t, 4>& masks) {
  struct Known {
    uint32_t bits;
    std::array<uint32_t, 4> masks;
    BmpLayout layout;
  };
  static constexpr Known kKnown[] = {
      {32, {0xFF0000, 0xFF00, 0xFF, 0x0}, BmpLayout::kBgrx},
      {32, {0xFF000000, 0xFF0000, 0xFF00, 0x0}, BmpLayout::kXbgr},
      {32, {0xFF000000, 0xFF00, 0xFF, 0x0}, BmpLayout::kXbgr},
      {32, {0xFF000000, 0xFF0000, 0xFF00, 0xFF}, BmpLayout::kAbgr},
      {32, {0xFF, 0xFF00, 0xFF0000, 0xFF000000}, BmpLayout::kRgba},
      {32, {0xFF0000, 0xFF00, 0xFF, 0xFF000000}, BmpLayout::kBgra},
      {32, {0, 0, 0, 0}, BmpLayout::kBgra},
      {16, {0xF800, 0x7E0, 0x1F, 0}, BmpLayout::kBgr565},
      {16, {0x7C00, 0x3E0, 0x1F, 0}, BmpLayout::kBgr555},
  };
  for (const Known& known : kKnown) {
    const size_t compared = bits == 16 ? 3 : 4;
    if (known.bits == bits &&
        std::equal(masks.begin(), masks.begin() + compared, known.masks.begin()))
      return known.layout;
  }
  if (bits == 24 && masks[0] == 0xFF0000 && masks[1] == 0xFF00 && masks[2] == 0xFF)
    return BmpLayout::kBgrx;
  return DamagedBmp("channels in an order that is not known");
}

Status ReadMasks(std::string_view bytes, size_t header_bytes, BmpInfo& info) {
  std::array<uint32_t, 4> masks{};
  const size_t count = header_bytes >= 56 ? 4 : 3;
  if (bytes.size() < 14 + 40 + 4 * count) return DamagedBmp("the file is truncated");
  for (size_t i = 0; i < count; ++i) masks[i] = Little32(bytes, 14 + 40 + 4 * i);
  ASSIGN_OR_RETURN(info.layout, LayoutOfMasks(info.bits, masks));
  return {};
}

// REQUIRES: the bytes begin with "BM".
Result<BmpInfo> ReadBmpInfo(std::string_view bytes) {
  if (bytes.size() < 26) return DamagedBmp("the file is truncated");
  BmpInfo info;
  info.data_at = Little32(bytes, 10);
  const size_t header_bytes = Little32(bytes, 14);
  if (header_bytes == 12) {
    info.width = Little16(bytes, 18);
    info.height = Little16(bytes, 20);
    info.bits = Little16(bytes, 24);
    info.palette_step = 3;
  } else if (header_bytes == 40 || header_bytes == 52 || header_bytes == 56 || header_bytes == 64 ||
             header_bytes == 108 || header_bytes == 124) {
    if (bytes.size() < 14 + header_bytes) return DamagedBmp("the file is truncated");
    info.width = Little32(bytes, 18);
    info.from_top = ByteAt(bytes, 25) == 0xFF;
    info.height = info.from_top ? (int64_t{1} << 32) - Little32(bytes, 22) : Little32(bytes, 22);
    info.bits = Little16(bytes, 28);
    info.compression = Little32(bytes, 30);
    info.palette_count = Little32(bytes, 46);
  } else {
    return DamagedBmp("its header has a size that is not known");
  }
  if (info.width > INT32_MAX || info.height > INT32_MAX)
    return DamagedBmp("its size makes no sense");
  info.palette_at = 14 + header_bytes;
  const bool runs = (info.compression == kRuns8 && info.bits == 8) ||
                    (info.compression == kRuns4 && info.bits == 4);
  if (info.compression == kMasks) {
    if (header_bytes < 52) info.palette_at += 12;
    RETURN_IF_ERROR(ReadMasks(bytes, header_bytes, info));
  } else if (info.compression != kPlain && !runs) {
    return DamagedBmp("a compression that is not known");
  } else if (info.bits == 16) {
    info.layout = BmpLayout::kBgr555;
  }
  static constexpr uint32_t kBits[] = {1, 4, 8, 16, 24, 32};
  if (std::ranges::find(kBits, info.bits) == std::end(kBits))
    return DamagedBmp("a number of bits a pixel that is not known");
  if (info.bits <= 8) {
    const size_t most = size_t{1} << info.bits;
    if (info.palette_count == 0) info.palette_count = most;
    if (info.palette_count > 256) return DamagedBmp("its palette is too large");
    if (bytes.size() < info.palette_at + info.palette_count * info.palette_step)
      return DamagedBmp("the file is truncated");
  }
  return info;
}

void ReadBmpPalette(std::string_view bytes, const BmpInfo& info, StoredPixels& pixels) {
  for (size_t i = 0; i < 256; ++i) {
    const auto gray = static_cast<uint8_t>(i);
    pixels.palette[i] = {gray, gray, gray, 255};
    if (i >= info.palette_count) continue;
    const size_t at = info.palette_at + i * info.palette_step;
    for (int c = 0; c < 3; ++c)
      pixels.palette[i][c] = static_cast<uint8_t>(ByteAt(bytes, at + 2 - c));
  }
}

// Converts one pixel of 16, 24 or 32 bits to three or four channels.
void ConvertBmpPixel(std::string_view bytes, size_t at, const BmpInfo& info, uint8_t* out) {
  if (info.bits == 16) {
    const uint32_t value = Little16(bytes, at);
    const bool six = info.layout == BmpLayout::kBgr565;
    out[0] = static_cast<uint8_t>(((value >> (six ? 11 : 10)) & 31) * 255 / 31);
    out[1] =
        static_cast<uint8_t>(six ? ((value >> 5) & 63) * 255 / 63 : ((value >> 5) & 31) * 255 / 31);
    out[2] = static_cast<uint8_t>((value & 31) * 255 / 31);
    return;
  }
  // Positions of red, green, blue and alpha.
  std::array<size_t, 4> from{2, 1, 0, 3};
  if (info.layout == BmpLayout::kXbgr || info.layout == BmpLayout::kAbgr) from = {3, 2, 1, 0};
  if (info.layout == BmpLayout::kRgba) from = {0, 1, 2, 3};
  const size_t channels =
      info.layout == BmpLayout::kBgrx || info.layout == BmpLayout::kXbgr ? 3 : 4;
  for (size_t c = 0; c < channels; ++c) out[c] = static_cast<uint8_t>(ByteAt(bytes, at + from[c]));
}

Status ReadBmpRows(std::string_view bytes, const BmpInfo& info, StoredPixels& pixels) {
  const size_t row_bytes = (static_cast<size_t>(info.width) * info.bits + 31) / 32 * 4;
  if (info.data_at > bytes.size() ||
      (bytes.size() - info.data_at) / row_bytes < static_cast<size_t>(info.height)) {
    return DamagedBmp("the file is truncated");
  }
  const int channels = ChannelsOf(pixels.mode);
  uint8_t* out = pixels.data.data();
  for (int64_t y = 0; y < info.height; ++y) {
    const size_t row = info.data_at + row_bytes * (info.from_top ? y : info.height - 1 - y);
    for (int64_t x = 0; x < info.width; ++x, out += channels) {
      const size_t bit = static_cast<size_t>(x) * info.bits;
      if (info.bits <= 8) {
        *out = static_cast<uint8_t>((ByteAt(bytes, row + bit / 8) >> (8 - info.bits - bit % 8)) &
                                    ((1U << info.bits) - 1));
      } else {
        ConvertBmpPixel(bytes, row + bit / 8, info, out);
      }
    }
  }
  return {};
}

// Decodes run-length encoding: runs of one index, literal indices, and moves. Skipped pixels have
// index 0.
class BmpRuns {
 public:
  BmpRuns(std::string_view bytes, const BmpInfo& info, std::vector<uint8_t>& out)
      : bytes_(bytes),
        info_(info),
        out_(out),
        at_(info.data_at),
        per_byte_(info.bits == 4 ? 2 : 1) {}

  Status Read() {
    const size_t count = out_.size();
    while (filled_ < count) {
      if (at_ > bytes_.size() || bytes_.size() - at_ < 2)
        return DamagedBmp("the file is truncated");
      const uint32_t length = ByteAt(bytes_, at_);
      const uint32_t value = ByteAt(bytes_, at_ + 1);
      at_ += 2;
      if (length != 0) {
        for (uint32_t i = 0; i < length; ++i) Put(IndexOf(value, i));
      } else if (value == 0) {
        if (filled_ % info_.width != 0) filled_ += info_.width - filled_ % info_.width;
      } else if (value == 1) {
        return {};
      } else if (value == 2) {
        if (bytes_.size() - at_ < 2) return DamagedBmp("the file is truncated");
        filled_ += ByteAt(bytes_, at_) + static_cast<size_t>(ByteAt(bytes_, at_ + 1)) * info_.width;
        at_ += 2;
      } else {
        RETURN_IF_ERROR(ReadLiteral(value));
      }
    }
    return {};
  }

 private:
  uint8_t IndexOf(uint32_t value, uint32_t i) const {
    return static_cast<uint8_t>(per_byte_ == 1 ? value : i % 2 == 0 ? value >> 4 : value & 15);
  }

  // Rows are stored from the bottom up unless the header says otherwise.
  void Put(uint8_t index) {
    if (filled_ >= out_.size()) return;
    const size_t row = filled_ / info_.width;
    out_[(info_.from_top ? row : info_.height - 1 - row) * info_.width + filled_ % info_.width] =
        index;
    ++filled_;
  }

  Status ReadLiteral(uint32_t count) {
    const size_t length = (count + per_byte_ - 1) / per_byte_;
    if (bytes_.size() - at_ < length) return DamagedBmp("the file is truncated");
    for (uint32_t i = 0; i < count; ++i) Put(IndexOf(ByteAt(bytes_, at_ + i / per_byte_), i));
    at_ += length;
    at_ += at_ % 2;  // literals are padded to an even position in the file
    return {};
  }

  std::string_view bytes_;
  const BmpInfo& info_;
  std::vector<uint8_t>& out_;
  size_t at_;
  uint32_t per_byte_;  // indices per byte
  size_t filled_ = 0;
};

}  // namespace

Result<StoredHeader> ReadBmpHeader(std::string_view bytes) {
  ASSIGN_OR_RETURN(const BmpInfo info, ReadBmpInfo(bytes));
  StoredHeader header{info.width, info.height, 0, {}, {}};
  header.work_bytes = BytesOfPixels(info.width, info.height, 4) + (1 << 16);
  return header;
}

Result<StoredPixels> DecodeBmp(std::string_view bytes, DecodeDeadline /*deadline*/) {
  ASSIGN_OR_RETURN(const BmpInfo info, ReadBmpInfo(bytes));
  StoredPixels pixels;
  const bool four =
      info.bits == 32 && info.layout != BmpLayout::kBgrx && info.layout != BmpLayout::kXbgr;
  pixels.mode = info.bits <= 8 ? Mode::kIndexed : four ? Mode::kRgba : Mode::kRgb;
  pixels.data.resize(static_cast<size_t>(info.width) * info.height * ChannelsOf(pixels.mode));
  if (info.bits <= 8) ReadBmpPalette(bytes, info, pixels);
  if (info.compression == kRuns8 || info.compression == kRuns4) {
    RETURN_IF_ERROR(BmpRuns(bytes, info, pixels.data).Read());
  } else {
    RETURN_IF_ERROR(ReadBmpRows(bytes, info, pixels));
  }
  return pixels;
}

}  // namespace sluice
