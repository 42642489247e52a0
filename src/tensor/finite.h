// Finds NaN and infinite numbers at memory speed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/stored_matrix.h"

namespace sluice {

// Whether all `count` elements are finite. Always true for types without NaN and infinity (I8,
// F4_E2M1, ...). `data` need not be aligned.
bool AllFinite(const std::byte* data, ElementType type, int64_t count);

// Whether the numbers or codes of rows [begin, end) are finite. Does not look at scales.
bool RowsAreFinite(const StoredMatrix& matrix, int64_t begin, int64_t end);

}  // namespace sluice
