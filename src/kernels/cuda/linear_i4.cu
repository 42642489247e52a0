// Products with INT4 weights that have scales and zero points of groups, and BF16 inputs.
#include "kernels/cuda/linear_launch.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE::linear {

void LaunchI4Tiles(const StreamHandle& stream, int tokens, const LinearTileArgs& args) {
  LaunchTiles<Format::kI4>(stream, tokens, args);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE::linear
