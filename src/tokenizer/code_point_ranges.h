// Look-ups in tables of code point ranges (range_data.h).
#pragma once

#include <algorithm>
#include <cstddef>

namespace sluice::unicode {

// Whether `c` lies in one of the `size` sorted ranges.
inline bool IsInRanges(const char32_t (*ranges)[2], size_t size, char32_t c) {
  const auto* const end = ranges + size;
  const auto* const after = std::upper_bound(
      ranges, end, c, [](char32_t value, const char32_t(&range)[2]) { return value < range[0]; });
  return after != ranges && c <= (*(after - 1))[1];
}

}  // namespace sluice::unicode
