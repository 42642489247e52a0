// Strict Base64 (RFC 4648): standard alphabet, padding required, no white space.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

// Decodes `text`. kInvalidArgument names the first invalid character, or a wrong length.
Result<std::string> DecodeBase64(std::string_view text);

std::string EncodeBase64(std::string_view bytes);
// Appends `bytes` in Base64 to `out`.
void AppendBase64(std::string& out, std::string_view bytes);

// Upper bound of the bytes that DecodeBase64() allocates.
inline int64_t DecodedBytes(std::string_view text) {
  return static_cast<int64_t>(text.size() / 4 * 3 + 3);
}

}  // namespace sluice
