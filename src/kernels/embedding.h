// embedding: looks up rows of the token embedding table.
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "kernels/matrix.h"

namespace sluice::kernels {

// Computes out[i, :] = table[tokens[i], :] as F32. out: [tokens.size(), table.cols]. REQUIRES: 0 <=
// tokens[i] < table.rows.
void Embedding(ThreadPool& pool, const PackedMatrix& table, std::span<const int32_t> tokens,
               float* out);

}  // namespace sluice::kernels
