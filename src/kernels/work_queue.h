// A parallel loop over units of work with work stealing.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <iterator>

#include "base/thread_pool.h"

namespace sluice::kernels {

// Calls body(unit, thread) once for every unit in [0, count). Thread t starts with its own
// contiguous share of the units, so that it reads the same memory in every step. Then it takes
// units from the shares of other threads. A unit's result must not depend on the thread that runs
// it.
template <typename Body>
void ForEachUnit(ThreadPool& pool, int64_t count, Body&& body) {
  constexpr int kMaxShares = 128;
  if (pool.num_threads() == 1 || count <= 1) {
    for (int64_t unit = 0; unit < count; ++unit) body(unit, 0);
    return;
  }
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  std::array<Share, kMaxShares> shares;
  const int num_shares = std::min(pool.num_threads(), kMaxShares);
  for (int i = 0; i < num_shares; ++i) {
    shares[i].next.store(count * i / num_shares, std::memory_order_relaxed);
    shares[i].end = count * (i + 1) / num_shares;
  }
  pool.Run([&](int thread) {
    for (int i = 0; i < num_shares; ++i) {
      Share& share = shares[(thread + i) % num_shares];
      int64_t unit = 0;
      while ((unit = share.next.fetch_add(1, std::memory_order_relaxed)) < share.end)
        body(unit, thread);
    }
  });
}

// Returns the part to which `unit` belongs if units are numbered through `parts`: the last part
// with first_unit(part) <= unit; first_unit is ascending. Takes logarithmic time. REQUIRES: the
// first part begins at or before `unit`.
template <typename Parts, typename FirstUnit>
auto& PartOfUnit(Parts& parts, int64_t unit, FirstUnit first_unit) {
  return *std::prev(std::ranges::upper_bound(parts, unit, {}, first_unit));
}

}  // namespace sluice::kernels
