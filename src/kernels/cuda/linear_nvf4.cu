// Products with E2M1 weights with an E4M3 scale per 16 numbers (NVFP4), and BF16 inputs.
#include "kernels/cuda/linear_launch.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE::linear {

void LaunchNvF4Tiles(const StreamHandle& stream, int tokens, const LinearTileArgs& args) {
  LaunchTiles<Format::kNvF4>(stream, tokens, args);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE::linear
