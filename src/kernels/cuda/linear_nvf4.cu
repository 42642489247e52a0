// Products of NVFP4 weights (E2M1 with one E4M3 scale per 16 elements) and BF16 inputs.
#include "kernels/cuda/linear_launch.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE::linear {

void LaunchNvF4Tiles(const StreamHandle& stream, int tokens, const LinearTileArgs& args) {
  LaunchTiles<Format::kNvF4>(stream, tokens, args);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE::linear
