#include "kernels/cuda/device_linear.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/integer.h"
#include "base/log.h"
#include "kernels/cuda/library_linear.h"
#include "kernels/cuda/linear_shapes.h"
#include "kernels/cuda/nvf4_scales.h"

namespace sluice::device {
namespace {

constexpr int kFirstWithF8 = 89;        // compute capability
constexpr int kFirstWithNvF4 = 100;     // compute capability
constexpr int64_t kF8Multiple = 16;     // of n and k, in the library's products of E4M3
constexpr int64_t kRowsMultiple = 128;  // of a chunk of expanded weights: whole tiles
// Log lines about what the library refused; a model has fewer shapes.
constexpr size_t kMaxRefusedShapes = 64;

const char* NameOf(ElementType codes) {
  switch (codes) {
    case ElementType::kBF16: return "BF16";
    case ElementType::kF8E4M3: return "E4M3";
    case ElementType::kI8: return "INT8";
    case ElementType::kF4E2M1: return "FP4";
    default: return "";
  }
}

void* Advance(void* address, int64_t bytes) {
  return static_cast<uint8_t*>(address) + bytes;
}

// Rows of a chunk of expanded weights.
int64_t ExpandedRows(const DeviceLinearOptions& options, const Weights& w) {
  const int64_t most =
      std::max(options.expand_bytes / (w.k * 2) / kRowsMultiple, int64_t{1}) * kRowsMultiple;
  if (w.n <= most) return w.n;
  // Chunks of like sizes.
  const int64_t chunks = CeilDiv(w.n, most);
  return RoundUp(CeilDiv(w.n, chunks), kRowsMultiple);
}

// Whether a library is looked for.
bool WantsLibrary(const DeviceInfo& info, const DeviceLinearOptions& options) {
  if (!options.use_library || options.batch_invariant) return false;
  return info.kind == DeviceKind::kCuda || !options.library.empty();
}

bool HasNvF4Scales(const Weights& w) {
  return w.type == ElementType::kF4E2M1 && w.group_type == GroupScales::kE4M3;
}

// Inputs that were rounded to NVFP4.
bool HasNvF4Inputs(const LinearArgs& args) {
  return args.x_type == ElementType::kBF16 && args.x_scales != nullptr;
}

// Whether the scales of rows of W and of x are a factor of the whole product. Results in BF16 are
// then rounded once, and not read and written again.
bool HasOneScale(const LinearArgs& args) {
  return args.w.row_scales != nullptr && args.x_scales != nullptr && args.w.same_row_scale != 0 &&
         args.same_x_scale != 0;
}

// Packed inputs: codes, then scales.
int64_t PackedCodeBytes(int64_t m, int64_t k) {
  return RoundUp(m * k / 2, 256);
}
int64_t PackedBytes(int64_t m, int64_t k) {
  return PackedCodeBytes(m, k) + NvF4ScaleBytes(m, k / kNvF4Group);
}

int64_t ScratchWith(bool library, int compute_capability, const DeviceLinearOptions& options,
                    const Weights& w, int64_t max_m) {
  const int64_t own = LinearScratchBytes(w, max_m);
  if (!library || max_m <= kMaxSkinnyRows) return own;
  // Of expanded weights or packed inputs: never both.
  int64_t operands = 0;
  if (w.type != ElementType::kBF16) operands = ExpandedRows(options, w) * w.k * 2;
  if (HasNvF4Scales(w) && compute_capability >= kFirstWithNvF4)
    operands = std::max(operands, PackedBytes(max_m, w.k));
  return std::max(own, RoundUp(options.workspace_bytes, 256) + operands);
}

// The product of rows [first_row, first_row + rows) of W, whose codes are at `codes`.
LibraryProduct ProductOf(const LinearArgs& args, ElementType type, const void* codes,
                         int64_t first_row, int64_t rows) {
  const int64_t element_bytes = args.y_type == ElementType::kF32 ? 4 : 2;
  return {.m = args.m,
          .n = rows,
          .k = args.w.k,
          .type = type,
          .y_type = args.y_type,
          .y_stride = args.y_stride,
          .w = codes,
          .x = args.x,
          .y = Advance(args.y, first_row * element_bytes),
          .workspace = args.scratch};
}

}  // namespace

DeviceLinear::DeviceLinear(const DeviceKernels& kernels, const DeviceLinearOptions& options,
                           int compute_capability)
    : kernels_(kernels), options_(options), compute_capability_(compute_capability) {}
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
  const DeviceInfo& info = device.info();
  std::unique_ptr<DeviceLinear> result(
      new DeviceLinear(kernels, options, info.compute_capability()));
  if (!WantsLibrary(info, options)) {
    LOG_INFO("kernels", "matrix products by own kernels{}",
             options.batch_invariant ? ", whose results do not depend on the batch" : "");
    return result;
  }
  auto library = LibraryLinear::Create(device, {.library = options.library,
                                                .tactics = options.tactics,
                                                .workspace_bytes = options.workspace_bytes,
                                                .fast_accumulation = options.fast_accumulation});
  if (library) {
    result->library_ = std::move(*library);
    LOG_INFO("kernels", "matrix products of more than {} rows by {}, others by own kernels",
             kMaxSkinnyRows, result->library());
    return result;
  }
  if (!options.library.empty() || CublasLtLibrary::IsNamedByUser())
    return tl::unexpected(std::move(library).error());
  LOG_WARNING("kernels", "own kernels serve large steps too, slower: {}", library.error().message);
  return result;
}

DeviceLinear::Way DeviceLinear::Choose(const LinearArgs& args) const {
  const Weights& w = args.w;
  if (library_ == nullptr || args.m <= kMaxSkinnyRows) return Way::kOwn;
  if (args.x_type == ElementType::kF8E4M3) {
    const bool fits = w.type == ElementType::kF8E4M3 && w.group_type == GroupScales::kNone &&
                      compute_capability_ >= kFirstWithF8 && w.n % kF8Multiple == 0 &&
                      w.k % kF8Multiple == 0;
    return fits ? Way::kDirect : Way::kOwn;
  }
  if (HasNvF4Inputs(args) && library_->HasNvF4() && library_->CanRun(NvF4Product(args)))
    return Way::kNvF4;
  return w.type == ElementType::kBF16 ? Way::kDirect : Way::kExpanded;
}

int64_t DeviceLinear::ScratchBytes(const Weights& w, int64_t max_m) const {
  return ScratchWith(library_ != nullptr, compute_capability_, options_, w, max_m);
}

int64_t DeviceLinear::PlannedScratchBytes(const DeviceInfo& info,
                                          const DeviceLinearOptions& options, const Weights& w,
                                          int64_t max_m) {
  return ScratchWith(WantsLibrary(info, options), info.compute_capability(), options, w, max_m);
}

void DeviceLinear::Run(DeviceStream& stream, const LinearArgs& args) {
  if (args.m == 0 || args.w.n == 0) return;
  const StreamHandle handle = stream.handle();
  Way way = Choose(args);
  if (way == Way::kNvF4) {
    if (RunNvF4(handle, args)) return;
    way = Way::kExpanded;
  }
  if (way == Way::kDirect && RunDirect(handle, args)) return;
  if (way == Way::kExpanded && RunExpanded(handle, args)) return;
  if (way != Way::kOwn) NoteRefused(args, "", "own kernels serve it");
  ++counts_.own;
  kernels_.linear(handle, args);
}

LibraryProduct DeviceLinear::DirectProduct(const LinearArgs& args) const {
  LibraryProduct product =
      ProductOf(args, args.x_type, args.w.codes, /*first_row=*/0, /*rows=*/args.w.n);
  if (args.x_type == ElementType::kF8E4M3 && library_->HasRowScales() &&
      args.w.row_scales != nullptr && args.x_scales != nullptr) {
    product.w_scales = args.w.row_scales;
    product.x_scales = args.x_scales;
    // A library that has no algorithm with scales may have one without.
    if (!library_->CanRun(product)) product.w_scales = product.x_scales = nullptr;
  }
  if (product.w_scales == nullptr && HasOneScale(args))
    product.factor = args.w.same_row_scale * args.same_x_scale;
  return product;
}

bool DeviceLinear::RunDirect(const StreamHandle& stream, const LinearArgs& args) {
  const LibraryProduct product = DirectProduct(args);
  const LibraryOutcome outcome = library_->Run(stream, product);
  if (outcome == LibraryOutcome::kRefused) return false;
  ++counts_.library;
  if (outcome == LibraryOutcome::kFailed) return true;
  const bool is_scaled = product.w_scales != nullptr || HasOneScale(args);
  FinishResults(stream, args, is_scaled ? nullptr : args.w.row_scales,
                is_scaled || args.x_type != ElementType::kF8E4M3 ? nullptr : args.x_scales);
  return true;
}

LibraryProduct DeviceLinear::NvF4Product(const LinearArgs& args) const {
  LibraryProduct product =
      ProductOf(args, ElementType::kF4E2M1, args.w.codes, /*first_row=*/0, /*rows=*/args.w.n);
  void* codes = Advance(args.scratch, RoundUp(options_.workspace_bytes, 256));
  product.x = codes;
  product.w_scales = args.w.group_scales;
  product.x_scales = Advance(codes, PackedCodeBytes(args.m, args.w.k));
  if (HasOneScale(args)) product.factor = args.w.same_row_scale * args.same_x_scale;
  return product;
}

bool DeviceLinear::RunNvF4(const StreamHandle& stream, const LinearArgs& args) {
  const LibraryProduct product = NvF4Product(args);
  kernels_.pack_nvf4(stream,
                     {.x = static_cast<const uint16_t*>(args.x),
                      .rows = args.m,
                      .cols = args.w.k,
                      .codes = static_cast<uint8_t*>(const_cast<void*>(product.x)),
                      .scales = static_cast<uint8_t*>(const_cast<void*>(product.x_scales))});
  const LibraryOutcome outcome = library_->Run(stream, product);
  if (outcome == LibraryOutcome::kRefused) return false;
  ++counts_.library;
  ++counts_.nvf4;
  if (outcome == LibraryOutcome::kEnqueued) {
    const bool is_scaled = HasOneScale(args);
    FinishResults(stream, args, is_scaled ? nullptr : args.w.row_scales,
                  is_scaled ? nullptr : args.x_scales);
  }
  return true;
}

bool DeviceLinear::RunExpanded(const StreamHandle& stream, const LinearArgs& args) {
  const Weights& w = args.w;
  const int64_t chunk = ExpandedRows(options_, w);
  void* expanded = Advance(args.scratch, RoundUp(options_.workspace_bytes, 256));
  // Results in BF16 are rounded once more if scales of rows come after them, results in F32 are
  // not: there the codes of all formats but blocks stay exact.
  const bool scales_later = args.y_type == ElementType::kF32 && w.row_scales != nullptr;
  Weights source = w;
  if (scales_later) source.row_scales = nullptr;
  const auto product_at = [&](int64_t row) {
    return ProductOf(args, ElementType::kBF16, expanded, row, std::min(chunk, w.n - row));
  };
  // Of all chunks only the last may differ from the first.
  const int64_t last = (w.n - 1) / chunk * chunk;
  if (!library_->CanRun(product_at(0)) || !library_->CanRun(product_at(last))) return false;
  for (int64_t row = 0; row < w.n; row += chunk) {
    const LibraryProduct product = product_at(row);
    kernels_.expand_weights(stream, {.w = source,
                                     .first_row = row,
                                     .rows = product.n,
                                     .out = static_cast<uint16_t*>(expanded)});
    const LibraryOutcome outcome = library_->Run(stream, product);
    if (outcome == LibraryOutcome::kRefused) return false;
    if (outcome == LibraryOutcome::kFailed) break;
  }
  ++counts_.library;
  if (HasNvF4Inputs(args) && compute_capability_ >= kFirstWithNvF4)
    NoteRefused(args, " with NVFP4 inputs", "its weights are expanded to BF16");
  FinishResults(stream, args, scales_later ? w.row_scales : nullptr, args.x_scales);
  return true;
}

void DeviceLinear::FinishResults(const StreamHandle& stream, const LinearArgs& args,
                                 const float* row_scales, const float* x_scales) {
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
  for (int64_t m = 2 * kMaxSkinnyRows; m < max_m; m *= 2) rows.push_back(m);
  if (max_m > kMaxSkinnyRows) rows.push_back(max_m);
  return rows;
}

Status DeviceLinear::Tune(DeviceStream& stream, const LinearArgs& args) {
  switch (Choose(args)) {
    case Way::kOwn: return {};
    case Way::kDirect: return library_->Tune(stream, DirectProduct(args));
    case Way::kNvF4: return library_->Tune(stream, NvF4Product(args));
    case Way::kExpanded: break;
  }
  // What the chunks hold does not matter for the time they take, so nothing is expanded.
  void* expanded = Advance(args.scratch, RoundUp(options_.workspace_bytes, 256));
  const int64_t chunk = ExpandedRows(options_, args.w), last = (args.w.n - 1) / chunk * chunk;
  for (const int64_t row : {int64_t{0}, last}) {
    RETURN_IF_ERROR(library_->Tune(stream, ProductOf(args, ElementType::kBF16, expanded, row,
                                                     std::min(chunk, args.w.n - row))));
  }
  return {};
}

void DeviceLinear::SaveTactics() {
  if (library_ == nullptr) return;
  if (const Status status = library_->SaveTactics(); !status)
    LOG_WARNING("kernels", "{}", status.error().message);
}

std::string DeviceLinear::library() const {
  return library_ == nullptr ? "" : library_->Describe();
}

}  // namespace sluice::device
