#include "kernels/cuda/linear_ways.h"

#include "kernels/cuda/linear_shapes.h"
#include "kernels/cuda/nvf4_scales.h"

namespace sluice::device {
namespace {

constexpr int kFirstWithF8 = 89;  // compute capability
// The library's E4M3 and FP4 products require that this number divides k, and n of the whole matrix
// and of each part.
constexpr int64_t kSizeMultiple = 16;

bool PartsBeginAtMultiplesOf(const Weights& w, int64_t multiple) {
  int64_t row = 0;
  for (int i = 0; i < w.num_parts; ++i) {
    if (row % multiple != 0) return false;
    row += w.parts[i].rows;
  }
  return row % kSizeMultiple == 0 && row == w.n;
}

LinearWays E4m3Ways(const LinearArgs& args, const LinearAbilities& abilities) {
  const Weights& w = args.w;
  LinearWays ways;
  if (w.type != ElementType::kF8E4M3 || w.group_type != GroupScales::kNone) return ways;
  if (abilities.compute_capability < kFirstWithF8 || !abilities.e4m3) return ways;
  if (w.n % kSizeMultiple != 0 || w.k % kSizeMultiple != 0) return ways;
  const auto add = [&](LinearWay way, LinearWay fast) {
    ways.Add(way);
    if (abilities.fast_sums) ways.Add(fast);
  };
  add(LinearWay::kPlain, LinearWay::kFastPlain);
  if (HasOneScale(args)) add(LinearWay::kOneScale, LinearWay::kFastOneScale);
  if (abilities.row_scales && w.row_scales != nullptr && args.x_scales != nullptr)
    add(LinearWay::kRowScales, LinearWay::kFastRowScales);
  if (HasPartScales(args) && PartsBeginAtMultiplesOf(w, kSizeMultiple))
    add(LinearWay::kPartScales, LinearWay::kFastPartScales);
  return ways;
}

}  // namespace

std::string_view NameOf(LinearWay way) {
  switch (way) {
    case LinearWay::kOneScale: return "library, one scale";
    case LinearWay::kRowScales: return "library, scales of rows";
    case LinearWay::kPartScales: return "library, a call a part";
    case LinearWay::kPlain: return "library";
    case LinearWay::kNvF4: return "library, NVFP4";
    case LinearWay::kNvF4Parts: return "library, NVFP4, a call a part";
    case LinearWay::kExpanded: return "library, expanded to BF16";
    case LinearWay::kFastOneScale: return "library, one scale, fast sums";
    case LinearWay::kFastRowScales: return "library, scales of rows, fast sums";
    case LinearWay::kFastPartScales: return "library, a call a part, fast sums";
    case LinearWay::kFastPlain: return "library, fast sums";
    case LinearWay::kGroups: return "own kernels, warpgroups";
    case LinearWay::kOwn: return "own kernels";
  }
  return "";
}

bool HasFastSums(LinearWay way) {
  return way >= LinearWay::kFastOneScale && way <= LinearWay::kFastPlain;
}

bool HasOneScale(const LinearArgs& args) {
  return args.w.row_scales != nullptr && args.x_scales != nullptr && args.w.same_row_scale != 0 &&
         args.same_x_scale != 0;
}

bool HasPartScales(const LinearArgs& args) {
  return args.w.row_scales != nullptr && args.x_scales != nullptr && args.w.num_parts > 1 &&
         args.same_x_scale != 0;
}

bool HasNvF4Inputs(const LinearArgs& args) {
  return args.x_type == ElementType::kBF16 && args.x_scales != nullptr;
}

LinearWays WaysOf(const LinearArgs& args, const LinearAbilities& abilities) {
  LinearWays ways;
  if (abilities.library && HasNvF4Inputs(args) && abilities.nvf4) {
    ways.Add(LinearWay::kNvF4);
    if (HasPartScales(args) && PartsBeginAtMultiplesOf(args.w, kNvF4TileRows))
      ways.Add(LinearWay::kNvF4Parts);
  }
  if (abilities.library && args.m >= kMinLibraryRows) {
    if (args.x_type == ElementType::kF8E4M3)
      ways = E4m3Ways(args, abilities);
    else
      ways.Add(args.w.type == ElementType::kBF16 ? LinearWay::kPlain : LinearWay::kExpanded);
  }
  if (abilities.groups && args.m >= kMinLibraryRows && args.m <= kMostGroupRows &&
      CanMultiplyByGroups(args))
    ways.Add(LinearWay::kGroups);
  ways.Add(LinearWay::kOwn);
  return ways;
}

}  // namespace sluice::device
