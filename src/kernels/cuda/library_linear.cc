#include "kernels/cuda/library_linear.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"
#include "device/library_failure.h"
#include "kernels/cuda/hipblaslt_library.h"
#include "kernels/cuda/launch_timer.h"
#include "tensor/element_type.h"

namespace sluice::device {

using namespace cublaslt;

namespace {

constexpr int kProposals = 8;
// Maximum number of cached kinds of products, and of cached descriptors; when it is reached, the
// cache is cleared.
constexpr size_t kMaxChoices = 4096;
// Alignment, in bytes, of addresses and leading dimensions that tensor cores need.
constexpr int64_t kAlignment = 16;

int TypeOf(ElementType number) {
  switch (number) {
    case ElementType::kBF16: return kTypeBF16;
    case ElementType::kF8E4M3: return kTypeE4M3;
    case ElementType::kF4E2M1: return kTypeE2M1;
    default: return kTypeF32;
  }
}

const char* TacticName(ElementType number) {
  switch (number) {
    case ElementType::kBF16: return "bf16";
    case ElementType::kF8E4M3: return "e4m3";
    case ElementType::kF4E2M1: return "e2m1";
    default: return "f32";
  }
}

bool IsAligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % kAlignment == 0;
}

// False if every algorithm would refuse the product, or read it slowly, because of its sizes or
// alignment.
bool IsPlausible(const LibraryProduct& product) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  if (product.m > kMax || product.n > kMax || product.k > kMax) return false;
  if (!IsAligned(product.w) || !IsAligned(product.x) || !IsAligned(product.y)) return false;
  if (!IsAligned(product.w_scales) || !IsAligned(product.x_scales)) return false;
  if (product.k * BitsPerElement(product.type) % (kAlignment * 8) != 0) return false;
  if (product.type != ElementType::kF8E4M3 && product.type != ElementType::kF4E2M1) return true;
  return product.n % 16 == 0 && product.k % 16 == 0 &&
         product.y_stride * BitsPerElement(product.y_type) % (kAlignment * 8) == 0;
}

}  // namespace

// Ownership: owns the library's records.
class LibraryLinear::Description {
 public:
  Description(const Functions& f, const LibraryProduct& product, const Options& options) : f_(f) {
    const int type = TypeOf(product.type);
    const auto m = static_cast<uint64_t>(product.m), n = static_cast<uint64_t>(product.n),
               k = static_cast<uint64_t>(product.k);
    Require(f.layout_create(&a_, type, k, n, product.k));
    Require(f.layout_create(&b_, type, k, m, product.k));
    Require(f.layout_create(&d_, TypeOf(product.y_type), n, m, product.y_stride));
    Require(f.operation_create(&operation_, kComputeF32, kTypeF32));
    Set(kTransposeA, kTransposed);
    Set(kTransposeB, kPlain);
    if (product.type == ElementType::kF8E4M3)
      Set(kFastAccumulation, static_cast<int8_t>(product.fast_accumulation ? 1 : 0));
    if (product.w_scales != nullptr) {
      const int32_t mode =
          product.type == ElementType::kF4E2M1 ? kScaleGroups16 : kScaleOuterVector;
      Set(kScaleModeA, mode);
      Set(kScaleModeB, mode);
    }
    Require(f.preference_create(&preference_));
    Prefer(kMaxWorkspace, static_cast<uint64_t>(options.workspace_bytes));
    for (const int attribute : {kAlignmentA, kAlignmentB, kAlignmentC, kAlignmentD})
      Prefer(attribute, static_cast<uint32_t>(kAlignment));
  }
  ~Description() {
    if (preference_ != nullptr) f_.preference_destroy(preference_);
    if (operation_ != nullptr) f_.operation_destroy(operation_);
    for (const Layout layout : {a_, b_, d_})
      if (layout != nullptr) f_.layout_destroy(layout);
  }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;

  // Sets the addresses of the product's scales, which can differ between products of the same
  // shape.
  void SetScales(const LibraryProduct& product) {
    if (product.w_scales == w_scales_ && product.x_scales == x_scales_) return;
    Set(kScalePointerA, product.w_scales);
    Set(kScalePointerB, product.x_scales);
    w_scales_ = product.w_scales;
    x_scales_ = product.x_scales;
  }

  // false: the library does not support a part of the product.
  bool is_complete() const { return is_complete_; }
  Layout a() const { return a_; }
  Layout b() const { return b_; }
  Layout d() const { return d_; }
  Operation operation() const { return operation_; }
  Preference preference() const { return preference_; }

 private:
  void Require(int status) { is_complete_ = is_complete_ && status == kSuccess; }
  template <typename T>
  void Set(int attribute, T value) {
    if (is_complete_)
      Require(
          f_.operation_set(operation_, attribute, static_cast<const void*>(&value), sizeof(value)));
  }
  template <typename T>
  void Prefer(int attribute, T value) {
    if (is_complete_) Require(f_.preference_set(preference_, attribute, &value, sizeof(value)));
  }

  const Functions& f_;
  Layout a_ = nullptr, b_ = nullptr, d_ = nullptr;
  Operation operation_ = nullptr;
  Preference preference_ = nullptr;
  const void* w_scales_ = nullptr;
  const void* x_scales_ = nullptr;
  bool is_complete_ = true;
};

LibraryLinear::LibraryLinear(Device& device, Options options,
                             std::unique_ptr<const CublasLtLibrary> library)
    : device_(device),
      options_(std::move(options)),
      library_(std::move(library)),
      f_(library_->functions()),
      tactics_(options_.tactics, {.device = device.info().name,
                                  .compute_capability = device.info().compute_capability(),
                                  .library_version = library_->version()}) {}

Result<std::unique_ptr<LibraryLinear>> LibraryLinear::Create(Device& device, Options options) {
  // The library initializes on the thread's current device, which a stream's handle sets.
  ASSIGN_OR_RETURN(const auto stream, device.CreateStream());
  stream->handle();
  ASSIGN_OR_RETURN(auto library, CublasLtLibrary::OpenFor(device.info().kind, options.library));
  std::unique_ptr<LibraryLinear> result(
      new LibraryLinear(device, std::move(options), std::move(library)));
  const int status = result->f_.create(&result->handle_);
  if (status != kSuccess) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{} does not start on {}: {}: expected a library that knows this "
                            "device; install that of a newer {}",
                            result->Describe(), device.info().name, result->f_.status_name(status),
                            device.info().kind == DeviceKind::kHip ? "ROCm" : "CUDA toolkit"));
  }
  return result;
}

LibraryLinear::~LibraryLinear() {
  descriptions_.clear();
  if (handle_ != nullptr) f_.destroy(handle_);
}

bool LibraryLinear::HasRowScales() const {
  if (device_.info().kind == DeviceKind::kHip)
    return library_->version() >= hipblaslt::kOuterVectorVersion;
  const int major = device_.info().compute_major;
  return (major == 9 || major == 10) && library_->version() >= kOuterVectorVersion;
}

bool LibraryLinear::HasNvF4() const {
  return device_.info().compute_capability() >= 100 && library_->version() >= kGroups16Version;
}

int64_t LibraryLinear::Bucket(int64_t m) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(m, 1))));
}

LibraryLinear::Kind LibraryLinear::KindOf(const LibraryProduct& product) {
  return {.n = product.n,
          .k = product.k,
          .bucket = Bucket(product.m),
          .y_stride = product.y_stride,
          .type = product.type,
          .y_type = product.y_type,
          .scaled = product.w_scales != nullptr,
          .fast = product.fast_accumulation};
}

std::string LibraryLinear::KeyOf(const Kind& kind) {
  return fmt::format("{} to {}{}{}, n {}, k {}, stride {}, m to {}", TacticName(kind.type),
                     TacticName(kind.y_type), kind.scaled ? " scaled" : "",
                     kind.fast ? " fast" : "", kind.n, kind.k, kind.y_stride, kind.bucket);
}

int LibraryLinear::Propose(const Description& description, int count, Heuristic* proposals) const {
  int found = 0;
  const int status = f_.find_algorithms(handle_, description.operation(), description.a(),
                                        description.b(), description.d(), description.d(),
                                        description.preference(), count, proposals, &found);
  if (status != kSuccess) return 0;
  Heuristic* end = std::remove_if(
      proposals, proposals + std::clamp(found, 0, count), [&](const Heuristic& proposal) {
        return proposal.state != kSuccess ||
               proposal.workspace_bytes > static_cast<size_t>(options_.workspace_bytes);
      });
  return static_cast<int>(end - proposals);
}

bool LibraryLinear::Check(const Description& description, const Algorithm& algorithm,
                          size_t& workspace_bytes) const {
  Heuristic result{};
  if (f_.check_algorithm(handle_, description.operation(), description.a(), description.b(),
                         description.d(), description.d(), &algorithm, &result) != kSuccess)
    return false;
  workspace_bytes = result.workspace_bytes;
  return workspace_bytes <= static_cast<size_t>(options_.workspace_bytes);
}

const LibraryLinear::Description* LibraryLinear::DescriptionOf(const LibraryProduct& product) {
  const Shape shape{.m = product.m,
                    .n = product.n,
                    .k = product.k,
                    .y_stride = product.y_stride,
                    .type = product.type,
                    .y_type = product.y_type,
                    .scaled = product.w_scales != nullptr,
                    .fast = product.fast_accumulation};
  auto found = descriptions_.find(shape);
  if (found == descriptions_.end()) {
    if (descriptions_.size() >= kMaxChoices) descriptions_.clear();
    found =
        descriptions_.emplace(shape, std::make_unique<Description>(f_, product, options_)).first;
  }
  found->second->SetScales(product);
  return found->second->is_complete() ? found->second.get() : nullptr;
}

const LibraryLinear::Choice& LibraryLinear::Choose(const LibraryProduct& product,
                                                   const Description& description) {
  if (choices_.size() >= kMaxChoices) choices_.clear();
  const Kind kind = KindOf(product);
  const auto [place, is_new] = choices_.try_emplace(kind);
  Choice& choice = place->second;
  if (is_new) {
    // A tactic from the file is treated like a proposal of the library: it is used only if the
    // library still accepts it.
    if (const Tactic* tactic = tactics_.Find(KeyOf(kind)); tactic != nullptr) {
      std::copy(tactic->algorithm.begin(), tactic->algorithm.end(), choice.measured.data);
      choice.tuned = true;
    }
  }
  if (choice.refused || choice.checked_m == product.m) return choice;
  if (choice.tuned && Check(description, choice.measured, choice.workspace_bytes)) {
    choice.algorithm = choice.measured;
    choice.checked_m = product.m;
    return choice;
  }
  // A measured algorithm that does not support this m is checked again at the next m. An algorithm
  // from the file that is refused at its first use is outdated.
  if (is_new) choice.tuned = false;
  if (!choice.tuned && !is_new && Check(description, choice.algorithm, choice.workspace_bytes)) {
    choice.checked_m = product.m;
    return choice;
  }
  Heuristic proposal;
  if (Propose(description, 1, &proposal) == 0) {
    choice.refused = true;
    return choice;
  }
  choice.algorithm = proposal.algorithm;
  choice.workspace_bytes = proposal.workspace_bytes;
  choice.checked_m = product.m;
  return choice;
}

bool LibraryLinear::CanRun(const LibraryProduct& product) {
  if (!IsPlausible(product)) return false;
  // Reuses the answer for this kind and size, for example for later chunks of expanded weights.
  const auto known = choices_.find(KindOf(product));
  if (known != choices_.end() && known->second.refused) return false;
  if (known != choices_.end() && known->second.checked_m == product.m) return true;
  const Description* description = DescriptionOf(product);
  return description != nullptr && !Choose(product, *description).refused;
}

LibraryOutcome LibraryLinear::Multiply(const StreamHandle& stream, const LibraryProduct& product,
                                       const Description& description, const Algorithm& algorithm,
                                       size_t workspace_bytes) const {
  const float zero = 0;
  const int status =
      f_.multiply(handle_, description.operation(), &product.factor, product.w, description.a(),
                  product.x, description.b(), &zero, product.y, description.d(), product.y,
                  description.d(), &algorithm, product.workspace, workspace_bytes, stream.native);
  if (status == kSuccess) return LibraryOutcome::kEnqueued;
  if (status == kInvalidValue || status == kArchMismatch || status == kNotSupported)
    return LibraryOutcome::kRefused;
  const char* const name =
      device_.info().kind == DeviceKind::kHip ? "hipblasLtMatmul" : "cublasLtMatmul";
  LOG_ERROR("kernels", "{} ({}): {}", name, KeyOf(KindOf(product)), f_.status_name(status));
  stream.failure->Record(name, kFailedInLibrary);
  return LibraryOutcome::kFailed;
}

LibraryOutcome LibraryLinear::Run(const StreamHandle& stream, const LibraryProduct& product) {
  CHECK((product.w_scales == nullptr) == (product.x_scales == nullptr), "scales of one side only");
  CHECK(product.type != ElementType::kF4E2M1 || product.w_scales != nullptr, "E2M1 without scales");
  if (!IsPlausible(product)) return LibraryOutcome::kRefused;
  const Description* description = DescriptionOf(product);
  if (description == nullptr) return LibraryOutcome::kRefused;
  const Choice& choice = Choose(product, *description);
  if (choice.refused) return LibraryOutcome::kRefused;
  const LibraryOutcome outcome =
      Multiply(stream, product, *description, choice.algorithm, choice.workspace_bytes);
  if (outcome == LibraryOutcome::kRefused) choices_[KindOf(product)] = {.refused = true};
  return outcome;
}

Status LibraryLinear::Tune(DeviceStream& stream, std::span<const LibraryProduct> products) {
  const LibraryProduct& product = products.front();
  if (!IsPlausible(product)) return {};
  const Description* description = DescriptionOf(product);
  if (description == nullptr) return {};
  const Choice& known = Choose(product, *description);
  if (known.tuned || known.refused) return {};

  std::array<Heuristic, kProposals> proposals;
  const int count = Propose(*description, kProposals, proposals.data());
  for (const LibraryProduct& one : products) {
    if (!IsPlausible(one) || DescriptionOf(one) == nullptr) return {};
  }
  ASSIGN_OR_RETURN(LaunchTimer timer, LaunchTimer::Create(device_));
  const Heuristic* best = nullptr;
  double best_seconds = std::numeric_limits<double>::infinity();
  for (int i = 0; i < count; ++i) {
    const Heuristic& proposal = proposals[static_cast<size_t>(i)];
    const auto launch = [&](int64_t turn) {
      const LibraryProduct& one = products[static_cast<size_t>(turn)];
      return Multiply(stream.handle(), one, *DescriptionOf(one), proposal.algorithm,
                      proposal.workspace_bytes) == LibraryOutcome::kEnqueued;
    };
    ASSIGN_OR_RETURN(const double seconds,
                     timer.Seconds(stream, std::ssize(products), best_seconds, launch));
    if (seconds < best_seconds) {
      best = &proposal;
      best_seconds = seconds;
    }
  }
  const Kind kind = KindOf(product);
  if (best == nullptr) {
    choices_[kind] = {.refused = true};
    return {};
  }
  choices_[kind] = {.tuned = true,
                    .measured = best->algorithm,
                    .algorithm = best->algorithm,
                    .workspace_bytes = best->workspace_bytes,
                    .checked_m = product.m};
  Tactic tactic{.workspace_bytes = static_cast<int64_t>(best->workspace_bytes),
                .seconds = best_seconds};
  std::copy(std::begin(best->algorithm.data), std::end(best->algorithm.data),
            tactic.algorithm.begin());
  tactics_.Put(KeyOf(kind), tactic);
  return {};
}

}  // namespace sluice::device
