// Unicode code points as UTF-8.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

// Appends one code point. Half of a surrogate pair becomes three bytes that are not valid UTF-8:
// whoever must not pass them on checks before. REQUIRES: code <= 0x10FFFF.
void AppendUtf8(std::string& out, uint32_t code);

}  // namespace sluice
