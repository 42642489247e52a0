// Division of a matrix product into tiles of rows by panels.
#pragma once

#include <cstdint>

namespace sluice::kernels {
namespace {

// Calls tile.operator()<rows, kPanels>(row, panel) with `rows`, from 1 to kRows, as a constant.
template <int kRows, int kPanels, typename Tile>
inline void RunTile(int64_t row, int64_t rows, int64_t panel, const Tile& tile) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return RunTile<kRows - 1, kPanels>(row, rows, panel, tile);
  }
  tile.template operator()<kRows, kPanels>(row, panel);
}

// Divides rows into equal tiles of at most kMaxRows; panels are taken in groups of kWidePanels
// while that many are left, then one by one. Not built on ForEachPanelGroup: with one more level of
// calls, GCC 12 inlines tiles into their callers and spills sums to the stack.
template <int kMaxRows, int kWidePanels, typename Tile>
inline void ForEachTile(int64_t row_begin, int64_t row_end, int64_t panel_begin, int64_t panel_end,
                        const Tile& tile) {
  const int64_t rows = row_end - row_begin;
  const int64_t tiles = (rows + kMaxRows - 1) / kMaxRows;
  for (int64_t panel = panel_begin; panel < panel_end;) {
    const bool wide = panel_end - panel >= kWidePanels;
    for (int64_t i = 0; i < tiles; ++i) {
      const int64_t begin = row_begin + rows * i / tiles;
      const int64_t count = row_begin + rows * (i + 1) / tiles - begin;
      if (wide)
        RunTile<kMaxRows, kWidePanels>(begin, count, panel, tile);
      else
        RunTile<kMaxRows, 1>(begin, count, panel, tile);
    }
    panel += wide ? kWidePanels : 1;
  }
}

// Calls body.operator()<panels>(panel) for groups of kWidePanels panels while that many are left,
// then for single panels.
template <int kWidePanels, typename Body>
inline void ForEachPanelGroup(int64_t panel_begin, int64_t panel_end, const Body& body) {
  for (int64_t panel = panel_begin; panel < panel_end;) {
    const bool wide = panel_end - panel >= kWidePanels;
    if (wide)
      body.template operator()<kWidePanels>(panel);
    else
      body.template operator()<1>(panel);
    panel += wide ? kWidePanels : 1;
  }
}

}  // namespace
}  // namespace sluice::kernels
