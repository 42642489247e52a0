// Grids of tiles for InternVL and LFM2-VL, which choose the grid whose aspect ratio is nearest to
// the image's.
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

// Returns kUnsupported for fewer than one tile, more than kMostTiles, or least above most.
Status CheckTileCounts(int least, int most, std::string_view least_name,
                       std::string_view most_name);

// Returns all grids of `least` to `most` tiles, ordered by number of tiles, then by columns.
std::vector<TileGrid> TileGridsOf(int least, int most);

// Returns the grid whose aspect ratio is nearest to the image's. Between equally near ones, a later
// grid wins if the image's area is more than half of the grid's. `tile_pixels`: pixels per tile.
// Returns 1 x 1 if `grids` is empty.
TileGrid ClosestTileGrid(const std::vector<TileGrid>& grids, int width, int height,
                         int64_t tile_pixels);

}  // namespace sluice
