// The launchers of the product's tiles. Each format has its own file, so that they compile in
// parallel. LaunchLinear (linear.cu) selects among them.
#pragma once

#include "kernels/cuda/linear_tile.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE::linear {

// `tokens`: rows of x per block, 16, 32, 64 or 128.
using LaunchLinearTiles = void(const StreamHandle& stream, int tokens, const LinearTileArgs& args);

LaunchLinearTiles LaunchBf16Tiles, LaunchF8Tiles, LaunchF8InputTiles, LaunchF8BlockTiles,
    LaunchI8Tiles, LaunchI4Tiles, LaunchNvF4Tiles, LaunchMxF4Tiles, LaunchMxF4CodeTiles;

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE::linear
