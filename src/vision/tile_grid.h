// Grids of tiles, of which the one whose ratio is the image's is chosen: InternVL, LFM2-VL.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

struct TileGrid {
  int rows = 1, columns = 1;
};

inline constexpr int kMostTiles = 256;

// kUnsupported: fewer than one tile, more than kMostTiles, or least above most.
Status CheckTileCounts(int least, int most, std::string_view least_name,
                       std::string_view most_name);

// All grids of `least` to `most` tiles, by their number of tiles; those with as many ascend by
// columns.
std::vector<TileGrid> TileGridsOf(int least, int most);

// The grid whose ratio is nearest to the image's. Of two that are as near the later one where the
// image has more than half of its pixels. `tile_pixels`: of one tile. 1 x 1 where there is none.
TileGrid ClosestTileGrid(const std::vector<TileGrid>& grids, int width, int height,
                         int64_t tile_pixels);

}  // namespace sluice
