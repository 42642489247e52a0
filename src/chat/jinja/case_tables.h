// Case conversions of one code point to several (Unicode's SpecialCasing.txt, unconditional part).
#pragma once

#include <span>

namespace sluice::jinja {

struct SpecialCase {
  char32_t from;
  char32_t to[3];  // Zero where shorter.
};

// Sorted by `from`.
std::span<const SpecialCase> SpecialUpper();
std::span<const SpecialCase> SpecialTitle();
std::span<const SpecialCase> SpecialLower();

}  // namespace sluice::jinja
