// The earlier positions that a token attends to. Attention kernels use the span as their mask; the
// cache decides by the span how long to keep a KV block.
#pragma once

#include <cstdint>

namespace sluice {

// A token at position p sees the positions up to p, but none before the start of its own chunk and
// none before its window. In each field, 0 means no limit.
struct AttentionSpan {
  int32_t chunk = 0;   // sees positions >= p / chunk * chunk
  int32_t window = 0;  // sees the last `window` positions, including p

  // Whether a token sees every earlier position.
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
