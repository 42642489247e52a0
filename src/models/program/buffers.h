// The memory of a program's buffers.
#pragma once

#include <cstdint>
#include <vector>

#include "models/program/program.h"

namespace sluice::program {

// Byte offsets, aligned to `alignment`. Buffers that are alive at the same operator do not overlap;
// others share memory.
struct BufferPlan {
  std::vector<int64_t> offsets;  // by BufferId: the first copy
  std::vector<int64_t> bytes;    // by BufferId: size of one copy
  int64_t total_bytes = 0;

  static BufferPlan For(const Program& program, int64_t alignment = 64);
};

}  // namespace sluice::program
