// Packing of narrow formats: codes into panels of words, scales beside them.
#pragma once

#include "base/thread_pool.h"
#include "kernels/panel_layout.h"
#include "tensor/stored_matrix.h"

namespace sluice::kernels {

// Packs rows [source_row, source_row + end - begin) of `source` into rows [begin, end) of the
// matrix. Rows of one panel may be packed by several calls, but not at the same time.
void PackNarrowRows(PackedMatrix& matrix, int64_t begin, int64_t end, const StoredMatrix& source,
                    int64_t source_row);

}  // namespace sluice::kernels
