// Products with E2M1 weights that have E4M3 scales of 16 (NVFP4), and BF16 inputs.
#include "kernels/cuda/linear_launch.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE::linear {

void LaunchNvF4Tiles(const StreamHandle& stream, int tokens, const LinearTileArgs& args) {
  LaunchTiles<Format::kNvF4>(stream, tokens, args);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE::linear
