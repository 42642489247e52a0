// Divides elementwise work among threads so that one wide row spreads over all threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/thread_pool.h"

namespace sluice::kernels {

// Calls part(row, begin, end) for ranges of columns that together cover [rows, cols]; each thread
// gets about `grain` elements or more.
template <typename Part>
void ForEachRowPart(ThreadPool& pool, int64_t rows, int64_t cols, int64_t grain, const Part& part) {
  pool.ParallelFor(rows * cols, grain, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t row = begin / cols;
      const int64_t col = begin % cols;
      const int64_t count = std::min(end - begin, cols - col);
      part(row, col, col + count);
      begin += count;
    }
  });
}

}  // namespace sluice::kernels
