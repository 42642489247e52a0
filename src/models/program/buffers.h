// Plans the memory of a program's buffers.
#pragma once

#include <cstdint>
#include <vector>

#include "models/program/program.h"

namespace sluice::program {

// Byte offsets of buffers, multiples of `alignment`. Buffers that are in use at the same operator
// do not overlap; other buffers may share memory.
struct BufferPlan {
  std::vector<int64_t> offsets;  // offset of the first copy, by BufferId
  std::vector<int64_t> bytes;    // size of one copy, by BufferId
  int64_t total_bytes = 0;

  static BufferPlan For(const Program& program, int64_t alignment = 64);
};

}  // namespace sluice::program
