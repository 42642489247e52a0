#include "tokenizer/byte_level.h"

#include <array>

#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace sluice::byte_level {
namespace {

// Printable Latin-1 characters represent themselves. The other bytes, in order, are represented by
// U+0100 and the characters after it.
constexpr bool StandsForItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr int kNumChars = 0x100 + 68;

constexpr std::array<uint16_t, 256> kCharOf = [] {
  std::array<uint16_t, 256> chars{};
  uint16_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    chars[static_cast<size_t>(byte)] = StandsForItself(byte) ? static_cast<uint16_t>(byte) : next++;
  }
  return chars;
}();

constexpr std::array<int16_t, kNumChars> kByteOf = [] {
  std::array<int16_t, kNumChars> bytes{};
  for (auto& byte : bytes) byte = -1;
  for (int byte = 0; byte < 256; ++byte)
    bytes[kCharOf[static_cast<size_t>(byte)]] = static_cast<int16_t>(byte);
  return bytes;
}();

}  // namespace

char32_t CharOf(uint8_t byte) {
  return kCharOf[byte];
}

std::optional<uint8_t> ByteOf(char32_t c) {
  if (c >= kNumChars || kByteOf[c] < 0) return std::nullopt;
  return static_cast<uint8_t>(kByteOf[c]);
}

std::string Spell(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char byte : bytes) AppendUtf8(out, CharOf(static_cast<uint8_t>(byte)));
  return out;
}

std::optional<std::string> Unspell(std::string_view spelling) {
  std::string out;
  out.reserve(spelling.size());
  for (size_t i = 0; i < spelling.size();) {
    const unicode::Decoded decoded = unicode::Decode(spelling.data() + i);
    const std::optional<uint8_t> byte = ByteOf(decoded.code_point);
    if (!byte) return std::nullopt;
    out.push_back(static_cast<char>(*byte));
    i += decoded.length;
  }
  return out;
}

}  // namespace sluice::byte_level
