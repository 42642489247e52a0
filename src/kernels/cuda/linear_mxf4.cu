// Products with E2M1 weights with an E8M0 scale per 32 numbers (MXFP4), and BF16 inputs.
#include "kernels/cuda/linear_launch.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE::linear {

void LaunchMxF4Tiles(const StreamHandle& stream, int tokens, const LinearTileArgs& args) {
  LaunchTiles<Format::kMxF4>(stream, tokens, args);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE::linear
