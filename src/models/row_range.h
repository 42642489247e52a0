#pragma once

#include <cstdint>

namespace sluice {

// Rows [begin, end).
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  friend bool operator==(const RowRange&, const RowRange&) = default;
};

}  // namespace sluice
