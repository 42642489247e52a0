// Case conversions that turn one code point into several (the unconditional part of Unicode's
// SpecialCasing.txt).
#pragma once

#include <span>

namespace sluice::jinja {

struct SpecialCase {
  char32_t from;
  char32_t to[3];  // Padded with zeros.
};

// Sorted by `from`.
std::span<const SpecialCase> SpecialUpper();
std::span<const SpecialCase> SpecialTitle();
std::span<const SpecialCase> SpecialLower();

}  // namespace sluice::jinja
