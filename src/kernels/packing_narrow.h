// Packing without conversion: 32-bit words are copied into panels, and their scales into
// group_scales and row_scales.
#pragma once

#include "base/thread_pool.h"
#include "kernels/panel_layout.h"
#include "tensor/stored_matrix.h"

namespace sluice::kernels {

// Packs rows [source_row, source_row + end - begin) of `source` into rows [begin, end) of the
// matrix. Rows of one panel may be packed by several calls, but not concurrently.
void PackNarrowRows(PackedMatrix& matrix, int64_t begin, int64_t end, const StoredMatrix& source,
                    int64_t source_row);

// Like PackNarrowRows, for BF16 to BF16. REQUIRES: `source` is not transposed.
void CopyBf16Rows(PackedMatrix& matrix, int64_t begin, int64_t end, const StoredMatrix& source,
                  int64_t source_row);

}  // namespace sluice::kernels
