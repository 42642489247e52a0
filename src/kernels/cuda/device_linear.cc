#include "kernels/cuda/device_linear.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/integer.h"
#include "base/log.h"
#include "kernels/cuda/addresses.h"
#include "kernels/cuda/launch_timer.h"
#include "kernels/cuda/library_linear.h"
#include "kernels/cuda/linear_shapes.h"
#include "kernels/cuda/mxf4_layout.h"
#include "kernels/cuda/nvf4_scales.h"

namespace sluice::device {
namespace {

// Compute capabilities.
constexpr int kFirstWithNvF4 = 100;
constexpr int kHopper = 90;
constexpr int kGfx950 = 95;  // AMD's first GPU with E4M3 products and products of scaled codes
// Rows of a chunk of expanded weights are a multiple of this, to fill whole tiles.
constexpr int64_t kRowsMultiple = 128;
// Maximum number of shapes whose refusal by the library is logged; a model has fewer.
constexpr size_t kMaxRefusedShapes = 64;
// Maximum number of cached choices; when it is reached, the cache is cleared.
constexpr size_t kMostWaysKept = 4096;
// Launches that cycle through this many times the cache's size read their data from memory.
constexpr int64_t kCaches = 3;

const char* NameOf(ElementType codes) {
  switch (codes) {
    case ElementType::kBF16: return "BF16";
    case ElementType::kF8E4M3: return "E4M3";
    case ElementType::kI8: return "INT8";
    case ElementType::kF4E2M1: return "FP4";
    case ElementType::kInt4: return "INT4";
    case ElementType::kF32: return "F32";
    default: return "";
  }
}

// Returns the rows per chunk of expanded weights.
int64_t ExpandedRows(const DeviceLinearOptions& options, const Weights& w) {
  const int64_t most =
      std::max(options.expand_bytes / (w.k * 2) / kRowsMultiple, int64_t{1}) * kRowsMultiple;
  if (w.n <= most) return w.n;
  // Makes chunks of similar size.
  const int64_t chunks = CeilDiv(w.n, most);
  return RoundUp(CeilDiv(w.n, chunks), kRowsMultiple);
}

// Returns whether to search for a library.
bool WantsLibrary(const DeviceInfo& info, const DeviceLinearOptions& options) {
  if (!options.use_library || options.batch_invariant) return false;
  return info.kind != DeviceKind::kEmulated || !options.library.empty();
}

bool HasNvF4Scales(const Weights& w) {
  return w.type == ElementType::kF4E2M1 && w.group_type == GroupScales::kE4M3;
}

// Packed inputs consist of codes, then scales.
int64_t PackedCodeBytes(int64_t m, int64_t k) {
  return RoundUp(m * k / 2, 256);
}
int64_t PackedBytes(int64_t m, int64_t k) {
  return PackedCodeBytes(m, k) + NvF4ScaleBytes(m, k / kNvF4Group);
}

// Packed MXFP4 inputs are behind the partial sums.
int64_t MxF4Offset(const Weights& w, int64_t max_m) {
  return RoundUp(LinearScratchBytes(w, max_m), 256);
}

int64_t ScratchWith(bool library, const DeviceInfo& info, const DeviceLinearOptions& options,
                    const Weights& w, int64_t max_m, bool x_is_mxf4) {
  const int compute_capability = info.compute_capability();
  const int64_t own = x_is_mxf4 && MultipliesMxF4(info)
                          ? MxF4Offset(w, max_m) + MxF4PackedBytes(max_m, w.k)
                          : LinearScratchBytes(w, max_m);
  const bool packs = HasNvF4Scales(w) && compute_capability >= kFirstWithNvF4;
  if (!library || (max_m < kMinLibraryRows && !packs)) return own;
  // Memory for expanded weights or packed inputs; a product never needs both.
  int64_t operands = 0;
  if (w.type != ElementType::kBF16) operands = ExpandedRows(options, w) * w.k * 2;
  if (packs) operands = std::max(operands, PackedBytes(max_m, w.k));
  return std::max(own, RoundUp(options.workspace_bytes, 256) + operands);
}

int64_t ElementBytes(const LinearArgs& args) {
  return args.y_type == ElementType::kF32 ? 4 : 2;
}

// Returns whether row scales are applied to the results, not to the expanded weights. This is so
// only for results in F32, because BF16 results would be rounded twice. The expanded codes are then
// exact in all formats except those with blocks.
bool ScalesExpandedLater(const LinearArgs& args) {
  return args.y_type == ElementType::kF32 && args.w.row_scales != nullptr;
}

// Returns the library product of rows [first_row, first_row + rows) of W, whose codes are at
// `codes`.
LibraryProduct ProductOf(const LinearArgs& args, ElementType type, const void* codes,
                         int64_t first_row, int64_t rows) {
  return {.m = args.m,
          .n = rows,
          .k = args.w.k,
          .type = type,
          .y_type = args.y_type,
          .y_stride = args.y_stride,
          .w = codes,
          .x = args.x,
          .y = Behind(args.y, first_row * ElementBytes(args)),
          .workspace = args.scratch};
}

}  // namespace

bool MultipliesMxF4(const DeviceInfo& info) {
  return info.kind == DeviceKind::kHip && info.compute_capability() >= kGfx950;
}

DeviceLinear::DeviceLinear(Device& device, const DeviceKernels& kernels,
                           const DeviceLinearOptions& options)
    : device_(device), kernels_(kernels), options_(options) {
  abilities_.compute_capability = device.info().compute_capability();
}
DeviceLinear::~DeviceLinear() = default;

Result<std::unique_ptr<DeviceLinear>> DeviceLinear::Create(Device& device,
                                                           const DeviceKernels& kernels,
                                                           const DeviceLinearOptions& options) {
  if (options.workspace_bytes < 0 || options.expand_bytes <= 0) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("scratch of matrix products: expected a workspace of at least 0 bytes "
                            "and more than 0 bytes for weights, found {} and {}",
                            options.workspace_bytes, options.expand_bytes));
  }
  std::unique_ptr<DeviceLinear> result(new DeviceLinear(device, kernels, options));
  if (!WantsLibrary(device.info(), options)) {
    LOG_INFO("kernels", "matrix products by own kernels{}",
             options.batch_invariant ? ", whose results do not depend on the batch" : "");
    return result;
  }
  auto library = LibraryLinear::Create(device, {.library = options.library,
                                                .tactics = options.tactics,
                                                .workspace_bytes = options.workspace_bytes});
  if (library) {
    result->library_ = std::move(*library);
    LinearAbilities& abilities = result->abilities_;
    abilities.library = true;
    // gfx942 has another FP8 format, which the library multiplies instead of E4M3.
    const bool is_amd = device.info().kind == DeviceKind::kHip;
    abilities.e4m3 = !is_amd || device.info().compute_capability() >= kGfx950;
    abilities.row_scales = result->library_->HasRowScales();
    abilities.nvf4 = result->library_->HasNvF4();
    abilities.fast_sums = options.fast_accumulation && !is_amd;  // hipBLASLt has none
    abilities.groups = !is_amd && device.info().compute_capability() == kHopper;
    LOG_INFO("kernels",
             "matrix products by own kernels or {}, whichever is measured to be faster{}",
             result->library(), abilities.fast_sums ? "; FP8 with fast accumulation, too" : "");
    return result;
  }
  if (!options.library.empty() || CublasLtLibrary::IsNamedByUser(device.info().kind))
    return tl::unexpected(std::move(library).error());
  LOG_WARNING("kernels", "our own kernels also compute large steps, more slowly: {}",
              library.error().message);
  return result;
}

int64_t DeviceLinear::ScratchBytes(const Weights& w, int64_t max_m, bool x_is_mxf4) const {
  return ScratchWith(library_ != nullptr, device_.info(), options_, w, max_m, x_is_mxf4);
}

int64_t DeviceLinear::PlannedScratchBytes(const DeviceInfo& info,
                                          const DeviceLinearOptions& options, const Weights& w,
                                          int64_t max_m, bool x_is_mxf4) {
  return ScratchWith(WantsLibrary(info, options), info, options, w, max_m, x_is_mxf4);
}

DeviceLinear::Kind DeviceLinear::KindOf(const LinearArgs& args, LinearWays ways) {
  return {.n = args.w.n,
          .k = args.w.k,
          .bucket = LibraryLinear::Bucket(args.m),
          .y_stride = args.y_stride,
          .w_type = args.w.type,
          .x_type = args.x_type,
          .y_type = args.y_type,
          .group_type = args.w.group_type,
          .has_bias = args.bias != nullptr,
          .x_is_mxf4 = args.x_is_mxf4,
          .ways = ways.bits()};
}

std::string DeviceLinear::KeyOf(const Kind& kind) {
  return fmt::format("way of {} {} by {}{} to {}{}, n {}, k {}, stride {}, m to {}, of {:x}",
                     NameOf(kind.w_type), static_cast<int>(kind.group_type), NameOf(kind.x_type),
                     kind.x_is_mxf4 ? " of MXFP4" : "", NameOf(kind.y_type),
                     kind.has_bias ? " with a bias" : "", kind.n, kind.k, kind.y_stride,
                     kind.bucket, kind.ways);
}

const DeviceLinear::Choice& DeviceLinear::ChoiceOf(const Kind& kind, int64_t m) {
  if (choices_.size() >= kMostWaysKept) choices_.clear();
  const auto [place, is_new] = choices_.try_emplace(kind);
  Choice& choice = place->second;
  if (!is_new || library_ == nullptr) return choice;
  LinearWays ways;
  const Tactic* tactic = library_->tactics().Find(KeyOf(kind));
  for (int i = kNumLinearWays - 1; i >= 0; --i) {
    const auto way = static_cast<LinearWay>(i);
    if ((kind.ways >> i & 1) == 0) continue;
    if (tactic != nullptr && tactic->way == NameOf(way)) return choice = {way, /*measured=*/true};
    if (m > kMaxSkinnyRows && way != LinearWay::kGroups) choice.way = way;
  }
  return choice;
}

LinearWay DeviceLinear::Choose(const LinearArgs& args) {
  return ChoiceOf(KindOf(args, WaysOf(args)), args.m).way;
}

PackedRows DeviceLinear::PackedIn(void* memory, int64_t m, int64_t k) {
  auto* const codes = static_cast<uint8_t*>(memory);
  return {codes, codes + PackedCodeBytes(m, k)};
}

PackedRows DeviceLinear::PlaceToPack(const LinearArgs& args, void* memory) {
  if (options_.packs_apart || args.m == 0 || args.w.n == 0) return {};
  const LinearWay way = Choose(args);
  if (way != LinearWay::kNvF4 && way != LinearWay::kNvF4Parts) return {};
  return PackedIn(memory, args.m, args.w.k);
}

int64_t DeviceLinear::PlannedPackedBytes(const DeviceInfo& info, const DeviceLinearOptions& options,
                                         const Weights& w, int64_t max_m) {
  const bool packs = WantsLibrary(info, options) && !options.packs_apart && HasNvF4Scales(w) &&
                     info.compute_capability() >= kFirstWithNvF4;
  return packs ? PackedBytes(max_m, w.k) : 0;
}

void DeviceLinear::Run(DeviceStream& stream, const LinearArgs& args, const PackedRows& packed) {
  if (args.m == 0 || args.w.n == 0) return;
  const StreamHandle handle = stream.handle();
  const LinearWays ways = WaysOf(args);
  const Choice choice = ChoiceOf(KindOf(args, ways), args.m);
  bool is_done = TryRun(choice.way, handle, args, packed);
  LinearWay way = choice.way;
  // If the library refuses, tries the other ways, except those that only a measurement can select.
  for (int i = 0; !is_done; ++i) {
    way = static_cast<LinearWay>(i);
    const bool is_measured = HasFastSums(way) || way == LinearWay::kGroups;
    if (way != choice.way && ways.Has(way) && !is_measured)
      is_done = TryRun(way, handle, args, packed);
  }
  if (way == LinearWay::kOwn && choice.way != way) NoteRefused(args, "", "own kernels serve it");
  const bool lacks_nvf4 =
      HasNvF4Inputs(args) && abilities_.compute_capability >= kFirstWithNvF4 && !choice.measured;
  if (way == LinearWay::kExpanded && lacks_nvf4)
    NoteRefused(args, " with NVFP4 inputs", "its weights are expanded to BF16");
}

std::vector<LibraryProduct> DeviceLinear::ProductsFor(LinearWay way, const LinearArgs& args,
                                                      const PackedRows& packed) const {
  const Weights& w = args.w;
  void* const operands = Behind(args.scratch, RoundUp(options_.workspace_bytes, 256));
  const PackedRows x = packed.codes != nullptr ? packed : PackedIn(operands, args.m, w.k);
  std::vector<LibraryProduct> products;
  const auto add = [&](int64_t first, int64_t rows) -> LibraryProduct& {
    LibraryProduct product = ProductOf(args, args.x_type, w.codes, first, rows);
    product.fast_accumulation = HasFastSums(way);
    return products.emplace_back(product);
  };
  const auto add_nvf4 = [&](int64_t first, int64_t rows) -> LibraryProduct& {
    LibraryProduct& product = add(first, rows);
    product.type = ElementType::kF4E2M1;
    product.w = Behind(w.codes, first * w.k / 2);
    product.w_scales = Behind(w.group_scales, NvF4ScaleBytes(first, w.k / kNvF4Group));
    product.x = x.codes;
    product.x_scales = x.scales;
    return product;
  };
  switch (way) {
    case LinearWay::kGroups:
    case LinearWay::kOwn: break;
    case LinearWay::kPlain:
    case LinearWay::kFastPlain: add(0, w.n); break;
    case LinearWay::kOneScale:
    case LinearWay::kFastOneScale: add(0, w.n).factor = w.same_row_scale * args.same_x_scale; break;
    case LinearWay::kRowScales:
    case LinearWay::kFastRowScales: {
      LibraryProduct& product = add(0, w.n);
      product.w_scales = w.row_scales;
      product.x_scales = args.x_scales;
      break;
    }
    case LinearWay::kNvF4: {
      LibraryProduct& product = add_nvf4(0, w.n);
      if (HasOneScale(args)) product.factor = w.same_row_scale * args.same_x_scale;
      break;
    }
    case LinearWay::kPartScales:
    case LinearWay::kFastPartScales:
    case LinearWay::kNvF4Parts: {
      int64_t first = 0;
      for (int i = 0; i < w.num_parts; ++i) {
        const ScaledPart& part = w.parts[i];
        LibraryProduct& product =
            way == LinearWay::kNvF4Parts ? add_nvf4(first, part.rows) : add(first, part.rows);
        if (way != LinearWay::kNvF4Parts) product.w = Behind(w.codes, first * w.k);
        product.factor = part.scale * args.same_x_scale;
        first += part.rows;
      }
      break;
    }
    case LinearWay::kExpanded: {
      const int64_t chunk = ExpandedRows(options_, w);
      for (int64_t first = 0; first < w.n; first += chunk) {
        products.push_back(
            ProductOf(args, ElementType::kBF16, operands, first, std::min(chunk, w.n - first)));
      }
      break;
    }
  }
  return products;
}

bool DeviceLinear::TryRun(LinearWay way, const StreamHandle& stream, const LinearArgs& args,
                          const PackedRows& packed) {
  if (way == LinearWay::kOwn || way == LinearWay::kGroups) {
    ++counts_.own;
    LinearArgs product = args;
    PackForOwn(stream, product);
    (way == LinearWay::kOwn ? kernels_.linear : kernels_.linear_groups)(stream, product);
    return true;
  }
  const std::vector<LibraryProduct> products = ProductsFor(way, args, packed);
  // Runs all products or none, and prepares operands only if they will run.
  const bool is_prepared = way == LinearWay::kExpanded || way == LinearWay::kNvF4;
  if (is_prepared || products.size() > 1) {
    for (const LibraryProduct& product : products) {
      if (!library_->CanRun(product)) return false;
    }
  }
  bool has_failed = false;
  int64_t first_row = 0;
  for (const LibraryProduct& product : products) {
    if (way == LinearWay::kExpanded || packed.codes == nullptr)
      PrepareOperands(way, stream, args, product, first_row);
    first_row += product.n;
    const LibraryOutcome outcome = library_->Run(stream, product);
    if (outcome == LibraryOutcome::kRefused) return false;
    has_failed = outcome == LibraryOutcome::kFailed;
    if (has_failed) break;
  }
  ++counts_.library;
  counts_.nvf4 += way == LinearWay::kNvF4 || way == LinearWay::kNvF4Parts;
  if (!has_failed) FinishResults(way, stream, args);
  return true;
}

void DeviceLinear::PackForOwn(const StreamHandle& stream, LinearArgs& args) {
  if (!args.x_is_mxf4 || args.m == 0 || !MultipliesMxF4(device_.info())) return;
  ++counts_.mxf4;
  auto* const codes = static_cast<uint8_t*>(Behind(args.scratch, MxF4Offset(args.w, args.m)));
  uint8_t* const scales = codes + MxF4CodeBytes(args.m, args.w.k);
  kernels_.pack_mxf4(stream,
                     {static_cast<const uint16_t*>(args.x), args.m, args.w.k, codes, scales});
  args.x_codes = codes;
  args.x_group_scales = scales;
}

void DeviceLinear::RunGrouped(DeviceStream& stream, const GroupedLinearArgs& args) {
  if (args.linear.m == 0) return;
  GroupedLinearArgs products = args;
  PackForOwn(stream.handle(), products.linear);
  kernels_.grouped_linear(stream.handle(), products);
}

void DeviceLinear::PrepareOperands(LinearWay way, const StreamHandle& stream,
                                   const LinearArgs& args, const LibraryProduct& product,
                                   int64_t first_row) {
  if (way == LinearWay::kExpanded) {
    Weights source = args.w;
    if (ScalesExpandedLater(args)) source.row_scales = nullptr;
    kernels_.expand_weights(stream, {.w = source,
                                     .first_row = first_row,
                                     .rows = product.n,
                                     .out = static_cast<uint16_t*>(const_cast<void*>(product.w))});
  }
  if ((way == LinearWay::kNvF4 || way == LinearWay::kNvF4Parts) && first_row == 0) {
    kernels_.pack_nvf4(stream,
                       {.x = static_cast<const uint16_t*>(args.x),
                        .rows = args.m,
                        .cols = args.w.k,
                        .codes = static_cast<uint8_t*>(const_cast<void*>(product.x)),
                        .scales = static_cast<uint8_t*>(const_cast<void*>(product.x_scales))});
  }
}

void DeviceLinear::FinishResults(LinearWay way, const StreamHandle& stream,
                                 const LinearArgs& args) {
  const float* row_scales = args.w.row_scales;
  const float* x_scales = args.x_scales;
  switch (way) {
    case LinearWay::kPlain:
    case LinearWay::kFastPlain:
      if (args.x_type != ElementType::kF8E4M3) x_scales = nullptr;
      break;
    case LinearWay::kNvF4:
      if (HasOneScale(args)) row_scales = x_scales = nullptr;
      break;
    case LinearWay::kExpanded:
      if (!ScalesExpandedLater(args)) row_scales = nullptr;
      break;
    default: row_scales = x_scales = nullptr; break;
  }
  if (row_scales == nullptr && x_scales == nullptr && args.bias == nullptr) return;
  kernels_.scale_results(stream, {.y = args.y,
                                  .y_type = args.y_type,
                                  .m = args.m,
                                  .n = args.w.n,
                                  .y_stride = args.y_stride,
                                  .row_scales = row_scales,
                                  .x_scales = x_scales,
                                  .bias = args.bias});
}

void DeviceLinear::NoteRefused(const LinearArgs& args, const char* inputs, const char* instead) {
  ++counts_.refused;
  if (refused_shapes_.size() >= kMaxRefusedShapes) return;
  const std::string shape =
      fmt::format("{}{} [{}, {}] to {}", NameOf(args.w.type), inputs, args.w.n, args.w.k,
                  args.y_type == ElementType::kF32 ? "F32" : "BF16");
  if (refused_shapes_.insert(shape).second)
    LOG_WARNING("kernels", "{} has no algorithm for {} of {} rows: {}, slower", library(), shape,
                args.m, instead);
}

std::vector<int64_t> DeviceLinear::TuningRows(int64_t max_m) const {
  std::vector<int64_t> rows;
  if (library_ == nullptr) return rows;
  const int64_t first = abilities_.nvf4 ? 1 : LibraryLinear::Bucket(kMinLibraryRows);
  for (int64_t m = first; m < max_m; m *= 2) rows.push_back(m);
  if (max_m >= (abilities_.nvf4 ? 1 : kMinLibraryRows)) rows.push_back(max_m);
  return rows;
}

LinearWays DeviceLinear::Candidates(const LinearArgs& args, LinearWays ways) {
  bool rounds_once = false;
  for (int i = 0; i < kNumLinearWays; ++i) {
    const auto way = static_cast<LinearWay>(i);
    if (way == LinearWay::kOwn || !ways.Has(way)) continue;
    for (const LibraryProduct& product : ProductsFor(way, args)) {
      if (!library_->CanRun(product)) ways.Remove(way);
    }
    rounds_once |= ways.Has(way) && way <= LinearWay::kPartScales;
  }
  if (args.y_type == ElementType::kBF16 && rounds_once) {
    ways.Remove(LinearWay::kPlain);
    ways.Remove(LinearWay::kFastPlain);
  }
  return ways;
}

Result<LinearWay> DeviceLinear::Measure(DeviceStream& stream, std::span<const LinearArgs> layers,
                                        const PackedRows& packed, LinearWays candidates,
                                        double& seconds) {
  ASSIGN_OR_RETURN(LaunchTimer timer, LaunchTimer::Create(device_));
  LinearWay best = LinearWay::kOwn;
  seconds = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kNumLinearWays; ++i) {
    const auto way = static_cast<LinearWay>(i);
    if (!candidates.Has(way)) continue;
    std::vector<std::vector<LibraryProduct>> products;  // per layer
    for (const LinearArgs& layer : layers) products.push_back(ProductsFor(way, layer, packed));
    for (size_t at = 0; at < products.front().size(); ++at) {
      std::vector<LibraryProduct> turns;
      for (const auto& of_layer : products) turns.push_back(of_layer[at]);
      RETURN_IF_ERROR(library_->Tune(stream, turns));
    }
    ASSIGN_OR_RETURN(
        const double found, timer.Seconds(stream, std::ssize(layers), seconds, [&](int64_t turn) {
          return TryRun(way, stream.handle(), layers[static_cast<size_t>(turn)], packed);
        }));
    if (found < seconds) {
      best = way;
      seconds = found;
    }
  }
  return best;
}

Status DeviceLinear::Tune(DeviceStream& stream, std::span<const LinearArgs> layers,
                          const PackedRows& packed) {
  const LinearArgs& args = layers.front();
  if (library_ == nullptr || args.m == 0 || args.w.n == 0) return {};
  const LinearWays ways = WaysOf(args);
  const Kind kind = KindOf(args, ways);
  if (ways.IsOwnAlone() || ChoiceOf(kind, args.m).measured) return {};
  const LinearWays candidates = Candidates(args, ways);
  // Uses enough layers that the L2 cache cannot hold their weights between runs.
  std::vector<LinearArgs> alike;
  const int64_t enough = kCaches * device_.info().l2_bytes;
  const int64_t layer_bytes = args.w.n * args.w.k * LinearCodeBits(args.w.type) / 8;
  for (const LinearArgs& layer : layers) {
    const int64_t count = std::ssize(alike);
    if (count > 0 && (count >= kMostRotatedLayers || count * layer_bytes >= enough)) break;
    if (KindOf(layer, WaysOf(layer)) == kind) alike.push_back(layer);
  }
  double seconds = 0;
  const DeviceLinearCounts counts = counts_;
  ASSIGN_OR_RETURN(const LinearWay best, Measure(stream, alike, packed, candidates, seconds));
  counts_ = counts;
  choices_[kind] = {.way = best, .measured = true};
  library_->tactics().Put(KeyOf(kind), {.way = std::string(NameOf(best)), .seconds = seconds});
  return {};
}

void DeviceLinear::SaveTactics() {
  if (library_ == nullptr) return;
  if (const Status status = library_->tactics().Save(); !status)
    LOG_WARNING("kernels", "{}", status.error().message);
}

std::string DeviceLinear::library() const {
  return library_ == nullptr ? "" : library_->Describe();
}

}  // namespace sluice::device
