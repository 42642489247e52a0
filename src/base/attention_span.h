// Which earlier positions a token attends to. Attention kernels mask by it; it also decides how
// long a KV block is kept.
#pragma once

#include <cstdint>

namespace sluice {

// A token at position p sees positions up to p, from the start of its own chunk on and no farther
// back than the window. 0: no such limit.
struct AttentionSpan {
  int32_t chunk = 0;   // sees positions from p / chunk * chunk on
  int32_t window = 0;  // sees the last `window` positions, p included

  // Whether every earlier position is seen.
  bool sees_all() const { return chunk == 0 && window == 0; }

  // The first position that a token at `position` sees.
  template <typename Position>
  Position FirstSeen(Position position) const {
    const Position in_chunk = chunk > 0 ? position / chunk * chunk : 0;
    const Position in_window = window > 0 && position >= window ? position - window + 1 : 0;
    return in_chunk > in_window ? in_chunk : in_window;
  }

  friend bool operator==(const AttentionSpan&, const AttentionSpan&) = default;
};

}  // namespace sluice
