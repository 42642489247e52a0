// y = x W^T with weights of any format, grouped by expert or not.
#include "kernels/cuda/linear_launch.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace linear {
namespace {

LaunchLinearTiles* TilesOf(const device::LinearArgs& args) {
  switch (args.w.type) {
    case ElementType::kBF16: return LaunchBf16Tiles;
    case ElementType::kI8: return LaunchI8Tiles;
    case ElementType::kInt4: return LaunchI4Tiles;
    case ElementType::kF4E2M1:
      if (args.w.group_type == device::GroupScales::kE4M3) return LaunchNvF4Tiles;
      return args.x_codes != nullptr ? LaunchMxF4CodeTiles : LaunchMxF4Tiles;
    default: break;
  }
  if (args.w.group_type == device::GroupScales::kBlock) return LaunchF8BlockTiles;
  return args.x_type == ElementType::kF8E4M3 ? LaunchF8InputTiles : LaunchF8Tiles;
}

void LaunchProduct(const StreamHandle& stream, const device::GroupedLinearArgs& product) {
  const device::LinearArgs& linear = product.linear;
  const device::Weights& w = linear.w;
  if (linear.m == 0) return;
  LinearTileArgs args{product, device::LinearSplitOf(w), nullptr};
  const int64_t groups = product.num_experts > 0 ? product.num_experts : 1;
  const int tokens = device::LinearTileTokens((linear.m + groups - 1) / groups);
  const int64_t tiles =
      device::LinearTokenTiles(linear.m, product.num_experts, tokens) * device::LinearRowTiles(w.n);
  if (args.split.ranges > 1 && linear.m <= device::kMaxParallelSplitRows &&
      tiles <= device::kMostSplitTiles) {
    args.partials = static_cast<float*>(linear.scratch);
  }
  TilesOf(linear)(stream, tokens, args);
}

}  // namespace
}  // namespace linear

void LaunchLinear(const StreamHandle& stream, const device::LinearArgs& args) {
  linear::LaunchProduct(stream, {args, 0, 0, 0, 0, nullptr});
}

void LaunchGroupedLinear(const StreamHandle& stream, const device::GroupedLinearArgs& args) {
  linear::LaunchProduct(stream, args);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
