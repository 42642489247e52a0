// Bytes as hexadecimal digits.
#pragma once

#include <span>
#include <string>

namespace sluice {

// Two lower-case digits per byte.
std::string HexDigits(std::span<const unsigned char> bytes);

}  // namespace sluice
