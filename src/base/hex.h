// Converts bytes to hexadecimal digits.
#pragma once

#include <span>
#include <string>

namespace sluice {

// Returns two lower-case digits per byte.
std::string HexDigits(std::span<const unsigned char> bytes);

}  // namespace sluice
