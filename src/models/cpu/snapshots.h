// Divides a slice of the step at the rows after which snapshots of its state are taken.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "models/model.h"

namespace sluice {

// Maximum number of snapshots of a slice per pass; a slice with more is computed in several passes.
inline constexpr size_t kMostTaken = 32;

// Calls run(slice, snapshots, first, rows) for consecutive parts of the slice with at most
// kMostTaken snapshots each. `snapshots`: those in rows [first, first + rows).
template <typename Snapshot, typename Make, typename Run>
void WithSnapshots(const StepInput& input, size_t slice, const Make& make, const Run& run) {
  std::array<Snapshot, kMostTaken> taken;
  size_t count = 0;
  int64_t first = 0;
  for (const StateSnapshot& snapshot : input.state_snapshots) {
    if (snapshot.slice != static_cast<int32_t>(slice)) continue;
    if (count == kMostTaken) {
      const int64_t rows = taken[count - 1].rows;
      run(std::span(taken.data(), count), first, rows);
      first += rows;
      count = 0;
    }
    taken[count++] = make(snapshot.rows - first, snapshot.slot);
  }
  run(std::span(taken.data(), count), first, input.SlicesOf(0)[slice].num_tokens - first);
}

}  // namespace sluice
