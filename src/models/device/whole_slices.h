// Lays out slices that are whole sequences, for steps of encoders and towers on devices.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "base/integer.h"
#include "kernels/attention.h"
#include "kernels/cuda/attention_plan.h"

namespace sluice {

// Positions in a step's host buffer at which the next slice is written.
struct SliceWriter {
  int32_t block_size;
  int64_t* slot;        // cache slots of the tokens
  int32_t* tables;      // block tables of all slices
  int32_t* next_table;  // place of the next block table in `tables`

  // Writes the slots and the block table of `slice`. Returns the slice's attention arguments.
  // REQUIRES: slice.context is 0.
  device::AttentionSliceInfo Write(const kernels::AttentionSlice& slice) {
    CHECK_EQ(slice.context, 0);
    const device::AttentionSliceInfo info = {.first_row = static_cast<int32_t>(slice.first_row),
                                             .num_tokens = slice.num_tokens,
                                             .context = 0,
                                             .table = static_cast<int32_t>(next_table - tables)};
    for (int32_t position = 0; position < slice.num_tokens; ++position) {
      *slot++ =
          int64_t{slice.block_table[position / block_size]} * block_size + position % block_size;
    }
    next_table = std::copy_n(slice.block_table,
                             CeilDiv(int64_t{slice.num_tokens}, int64_t{block_size}), next_table);
    return info;
  }
};

}  // namespace sluice
