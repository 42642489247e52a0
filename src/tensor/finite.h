// Looks for numbers that are NaN or infinite, at the speed of memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/stored_matrix.h"

namespace sluice {

// Whether all `count` elements are finite. Types that have no other numbers (I8, F4_E2M1, ...)
// always are. `data` need not be aligned.
bool AllFinite(const std::byte* data, ElementType type, int64_t count);

// The same of the stored numbers or codes of rows [begin, end), without their scales.
bool RowsAreFinite(const StoredMatrix& matrix, int64_t begin, int64_t end);

}  // namespace sluice
