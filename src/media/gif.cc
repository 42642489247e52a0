// Decodes the first frame of a GIF on its canvas, as Pillow does. Pixels outside the frame have the
// transparent color, or index 0.
#include <algorithm>

#include "media/byte_order.h"
#include "media/decoders.h"

namespace sluice {
namespace {

constexpr int kMaxCodeBits = 12;
constexpr int kMaxCodes = 1 << kMaxCodeBits;

// The description of the first frame that precedes the frame's data in the file.
struct GifFrame {
  int64_t canvas_width = 0;
  int64_t canvas_height = 0;
  int left = 0;
  int top = 0;
  int width = 0;
  int height = 0;
  bool interlaced = false;
  std::string_view colors;        // three bytes per index; empty without a color table
  std::optional<uint32_t> clear;  // the transparent index
  size_t data_at = 0;             // position of the code size, before the data blocks
};

tl::unexpected<Error> CutGif() {
  return DamagedImage(ImageFormat::kGif, "the file is truncated");
}

// Returns the position after data blocks, which end with an empty one; nullopt if the file is
// truncated.
std::optional<size_t> SkipGifBlocks(std::string_view bytes, size_t at) {
  while (at < bytes.size()) {
    const size_t length = ByteAt(bytes, at);
    at += 1 + length;
    if (length == 0) return at;
  }
  return std::nullopt;
}

// If the flags say that there is a color table at `at`, returns it and advances `at` past it.
Result<std::string_view> ReadColorTable(std::string_view bytes, uint32_t flags, size_t& at) {
  if ((flags & 0x80) == 0) return std::string_view();
  const size_t length = 3 * (size_t{2} << (flags & 7));
  if (bytes.size() - at < length) return CutGif();
  at += length;
  return bytes.substr(at - length, length);
}

// REQUIRES: the bytes begin with the signature.
Result<GifFrame> ReadFirstFrame(std::string_view bytes) {
  if (bytes.size() < 13) return CutGif();
  GifFrame frame;
  frame.canvas_width = Little16(bytes, 6);
  frame.canvas_height = Little16(bytes, 8);
  size_t at = 13;
  ASSIGN_OR_RETURN(frame.colors, ReadColorTable(bytes, ByteAt(bytes, 10), at));
  while (at < bytes.size()) {
    const uint32_t kind = ByteAt(bytes, at);
    if (kind == 0x21) {  // an extension
      if (bytes.size() - at < 8) return CutGif();
      const bool control = ByteAt(bytes, at + 1) == 0xF9 && ByteAt(bytes, at + 2) >= 4;
      if (control && (ByteAt(bytes, at + 3) & 1) != 0) frame.clear = ByteAt(bytes, at + 6);
      const std::optional<size_t> next = SkipGifBlocks(bytes, at + 2);
      if (!next) return CutGif();
      at = *next;
    } else if (kind == 0x2C) {  // an image
      if (bytes.size() - at < 11) return CutGif();
      frame.left = static_cast<int>(Little16(bytes, at + 1));
      frame.top = static_cast<int>(Little16(bytes, at + 3));
      frame.width = static_cast<int>(Little16(bytes, at + 5));
      frame.height = static_cast<int>(Little16(bytes, at + 7));
      const uint32_t flags = ByteAt(bytes, at + 9);
      frame.interlaced = (flags & 0x40) != 0;
      at += 10;
      ASSIGN_OR_RETURN(const std::string_view own, ReadColorTable(bytes, flags, at));
      if (!own.empty()) frame.colors = own;
      frame.data_at = at;
      frame.canvas_width = std::max<int64_t>(frame.canvas_width, frame.left + frame.width);
      frame.canvas_height = std::max<int64_t>(frame.canvas_height, frame.top + frame.height);
      return frame;
    } else if (kind == 0x3B) {
      break;
    } else {
      ++at;  // bytes between blocks are skipped, as other programs do
    }
  }
  return DamagedImage(ImageFormat::kGif, "it has no frame");
}

// Reads codes of growing width from blocks of at most 255 bytes.
class CodeReader {
 public:
  CodeReader(std::string_view bytes, size_t at) : bytes_(bytes), at_(at) {}

  // Returns the next code; nullopt at the end of the blocks.
  std::optional<uint32_t> Next(int width) {
    while (bits_ < width) {
      if (left_ == 0) {
        if (at_ >= bytes_.size() || (left_ = ByteAt(bytes_, at_++)) == 0) return std::nullopt;
      }
      if (at_ >= bytes_.size()) return std::nullopt;
      held_ |= ByteAt(bytes_, at_++) << bits_;
      bits_ += 8;
      --left_;
    }
    const uint32_t code = held_ & ((1U << width) - 1);
    held_ >>= width;
    bits_ -= width;
    return code;
  }

 private:
  std::string_view bytes_;
  size_t at_;
  uint32_t held_ = 0;
  int bits_ = 0;
  uint32_t left_ = 0;  // remaining bytes of this block
};

// GIF's LZW dictionary: a code stands for the string of its prefix code plus one index.
class GifStrings {
 public:
  explicit GifStrings(int code_bits) : roots_(1 << code_bits) { Clear(); }

  uint32_t clear_code() const { return roots_; }
  uint32_t end_code() const { return roots_ + 1; }
  int width() const { return width_; }

  void Clear() {
    count_ = roots_ + 2;
    width_ = 1;
    while ((1U << width_) < count_) ++width_;
    previous_ = kNone;
  }

  // Appends the string of a code to `out`, up to `room`. Returns false if the code is invalid.
  bool Append(uint32_t code, std::vector<uint8_t>& out, size_t room) {
    if (code >= count_ + (previous_ != kNone && count_ < kMaxCodes ? 1 : 0)) return false;
    const bool is_new = code == count_;
    uint32_t walk = is_new ? previous_ : code;
    size_t length = 0;
    for (; walk >= roots_; walk = prefix_[walk]) string_[length++] = last_[walk];
    const auto first = static_cast<uint8_t>(walk);
    string_[length++] = first;
    if (out.size() < room) {
      const size_t count = std::min(length, room - out.size());
      for (size_t i = 0; i < count; ++i) out.push_back(string_[length - 1 - i]);
      if (is_new && out.size() < room) out.push_back(first);
    }
    if (previous_ != kNone && count_ < kMaxCodes) {
      prefix_[count_] = static_cast<uint16_t>(previous_);
      last_[count_++] = first;
      if (count_ == (1U << width_) && width_ < kMaxCodeBits) ++width_;
    }
    previous_ = code;
    return true;
  }

 private:
  static constexpr uint32_t kNone = kMaxCodes;
  uint32_t roots_;
  uint32_t count_ = 0;
  uint32_t previous_ = kNone;
  int width_ = 0;
  std::array<uint16_t, kMaxCodes> prefix_{};
  std::array<uint8_t, kMaxCodes> last_{};
  std::array<uint8_t, kMaxCodes + 1> string_{};
};

// Returns the indices of a frame in file order.
Result<std::vector<uint8_t>> ReadIndices(std::string_view bytes, const GifFrame& frame,
                                         DecodeDeadline deadline) {
  if (frame.data_at >= bytes.size()) return CutGif();
  const int code_bits = static_cast<int>(ByteAt(bytes, frame.data_at));
  if (code_bits < 1 || code_bits > 8)
    return DamagedImage(ImageFormat::kGif, "its codes have an invalid width");
  const size_t count = static_cast<size_t>(frame.width) * frame.height;
  std::vector<uint8_t> indices;
  indices.reserve(count);
  CodeReader codes(bytes, frame.data_at + 1);
  GifStrings strings(code_bits);
  for (uint64_t step = 0; indices.size() < count; ++step) {
    if (step % 65536 == 0 && std::chrono::steady_clock::now() > deadline)
      return DamagedImage(ImageFormat::kGif, "it takes too long");
    const std::optional<uint32_t> code = codes.Next(strings.width());
    if (!code || *code == strings.end_code()) return CutGif();
    if (*code == strings.clear_code()) {
      strings.Clear();
    } else if (!strings.Append(*code, indices, count)) {
      return DamagedImage(ImageFormat::kGif, "a code that was not defined");
    }
  }
  return indices;
}

// Returns the row of the frame for each position in the file.
std::vector<int> RowOrder(const GifFrame& frame) {
  std::vector<int> rows;
  rows.reserve(frame.height);
  constexpr int kStart[] = {0, 4, 2, 1};
  constexpr int kStep[] = {8, 8, 4, 2};
  for (int pass = 0; pass < (frame.interlaced ? 4 : 1); ++pass) {
    const int step = frame.interlaced ? kStep[pass] : 1;
    for (int y = kStart[pass]; y < frame.height; y += step) rows.push_back(y);
  }
  return rows;
}

}  // namespace

Result<StoredHeader> ReadGifHeader(std::string_view bytes) {
  ASSIGN_OR_RETURN(const GifFrame frame, ReadFirstFrame(bytes));
  StoredHeader header{frame.canvas_width, frame.canvas_height, 0, {}, {}};
  header.work_bytes = 2 * header.width * header.height + (1 << 20);
  if (frame.width < 1 || frame.height < 1)
    return DamagedImage(ImageFormat::kGif, "its first frame is empty");
  return header;
}

Result<StoredPixels> DecodeGif(std::string_view bytes, DecodeDeadline deadline) {
  ASSIGN_OR_RETURN(const GifFrame frame, ReadFirstFrame(bytes));
  ASSIGN_OR_RETURN(const std::vector<uint8_t> indices, ReadIndices(bytes, frame, deadline));
  StoredPixels pixels;
  pixels.mode = StoredPixels::Mode::kIndexed;
  pixels.data.assign(static_cast<size_t>(frame.canvas_width) * frame.canvas_height,
                     static_cast<uint8_t>(frame.clear.value_or(0)));
  for (uint32_t i = 0; i < 256; ++i) {
    auto& entry = pixels.palette[i];
    for (int c = 0; c < 3; ++c)
      entry[c] = static_cast<uint8_t>(
          3 * i + 2 < frame.colors.size() ? ByteAt(frame.colors, 3 * i + c) : i);
    entry[3] = frame.clear == i ? 0 : 255;
  }
  const std::vector<int> rows = RowOrder(frame);
  for (size_t y = 0; y < rows.size(); ++y) {
    std::copy_n(indices.begin() + static_cast<ptrdiff_t>(y * frame.width), frame.width,
                pixels.data.begin() + static_cast<ptrdiff_t>(
                                          (frame.top + rows[y]) * frame.canvas_width + frame.left));
  }
  return pixels;
}

}  // namespace sluice
