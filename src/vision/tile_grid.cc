#include "vision/tile_grid.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace sluice {

Status CheckTileCounts(int least, int most, std::string_view least_name,
                       std::string_view most_name) {
  if (least >= 1 && least <= most && most <= kMostTiles) return {};
  return Fail(
      ErrorCode::kUnsupported,
      fmt::format("{} {} and {} {} in preprocessor_config.json: expected 1 to {}, the first "
                  "not above the second",
                  least_name, least, most_name, most, kMostTiles));
}

std::vector<TileGrid> TileGridsOf(int least, int most) {
  std::vector<TileGrid> grids;
  for (int tiles = least; tiles <= most; ++tiles) {
    for (int columns = 1; columns <= tiles; ++columns) {
      if (tiles % columns == 0) grids.push_back({tiles / columns, columns});
    }
  }
  return grids;
}

TileGrid ClosestTileGrid(const std::vector<TileGrid>& grids, int width, int height,
                         int64_t tile_pixels) {
  const double ratio = static_cast<double>(width) / height;
  const double area = static_cast<double>(width) * height;
  double least = std::numeric_limits<double>::infinity();
  TileGrid best;
  for (const TileGrid& grid : grids) {
    const double difference = std::abs(ratio - static_cast<double>(grid.columns) / grid.rows);
    const int64_t pixels = tile_pixels * grid.rows * grid.columns;
    if (difference < least || (difference == least && area > 0.5 * static_cast<double>(pixels))) {
      least = difference;
      best = grid;
    }
  }
  return best;
}

}  // namespace sluice
