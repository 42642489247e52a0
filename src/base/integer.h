// Integer division and padding that round up.
#pragma once

#include <cstdint>

namespace sluice {

// The number of groups of `size` that hold `count` items. REQUIRES: count >= 0, size > 0.
constexpr int64_t CeilDiv(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}

// The least multiple of `multiple` that is at least `value`. REQUIRES: value >= 0, multiple > 0.
constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return CeilDiv(value, multiple) * multiple;
}

}  // namespace sluice
