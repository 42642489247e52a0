#include "base/hex.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace sluice {

std::string HexDigits(std::span<const unsigned char> bytes) {
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

}  // namespace sluice
