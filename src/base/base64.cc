#include "base/base64.h"

#include <array>

#include <fmt/format.h>

namespace sluice {
namespace {

constexpr uint8_t kNoDigit = 255;

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<uint8_t, 256> MakeDigits() {
  std::array<uint8_t, 256> digits{};
  for (uint8_t& digit : digits) digit = kNoDigit;
  for (size_t i = 0; i < kAlphabet.size(); ++i)
    digits[static_cast<uint8_t>(kAlphabet[i])] = static_cast<uint8_t>(i);
  return digits;
}

constexpr std::array<uint8_t, 256> kDigits = MakeDigits();

}  // namespace

Result<std::string> DecodeBase64(std::string_view text) {
  if (text.size() % 4 != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("base64 of {} characters: expected a multiple of 4, with = at the end",
                            text.size()));
  }
  size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  const std::string_view digits = text.substr(0, text.size() - padding);
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  uint32_t held = 0;
  int bits = 0;
  for (size_t i = 0; i < digits.size(); ++i) {
    const uint8_t digit = kDigits[static_cast<uint8_t>(digits[i])];
    if (digit == kNoDigit)
      return Fail(ErrorCode::kInvalidArgument, fmt::format("character {} is not base64", i));
    held = held << 6 | digit;
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes.push_back(static_cast<char>(held >> bits & 0xFF));
    }
  }
  return bytes;
}

void AppendBase64(std::string& out, std::string_view bytes) {
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t j = 0; j < 3; ++j)
      three = three << 8 | (i + j < bytes.size() ? static_cast<uint8_t>(bytes[i + j]) : 0U);
    for (size_t digit = 0; digit < 4; ++digit) {
      out.push_back(i + digit > bytes.size() ? '=' : kAlphabet[three >> (18 - 6 * digit) & 63]);
    }
  }
}

std::string EncodeBase64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  AppendBase64(text, bytes);
  return text;
}

}  // namespace sluice
