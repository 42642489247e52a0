// A single matrix product by the vendor's library, cuBLASLt or hipBLASLt: its descriptors for the
// product, and the choice of algorithm.
//
// The library is column-major. To it, row-major W [n, k] is a k x n matrix A, x [m, k] a k x m
// matrix B, and y [m, n] the n x m matrix D = A^T B.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "device/device.h"
#include "kernels/cuda/cublaslt_library.h"
#include "kernels/cuda/device_kernels.h"
#include "kernels/cuda/tactic_cache.h"

namespace sluice::device {

// Computes y = x W^T * factor, multiplied by the scales if there are any. Device addresses are
// multiples of 16 bytes.
struct LibraryProduct {
  int64_t m = 0, n = 0, k = 0;
  // The type of x and W: kBF16; kF8E4M3 (n and k are multiples of 16); kF4E2M1 (n is a multiple of
  // 16, k of 32).
  ElementType type = ElementType::kBF16;
  ElementType y_type = ElementType::kBF16;  // kBF16 or kF32
  int64_t y_stride = 0;
  const void* w = nullptr;
  const void* x = nullptr;
  void* y = nullptr;
  // Scales: both are null, or neither is. For kF8E4M3, F32 [n] and [m]; only if HasRowScales(). For
  // kF4E2M1, one E4M3 per 16 elements of a row, ordered as in nvf4_scales.h; required, and only if
  // HasNvF4().
  const void* w_scales = nullptr;
  const void* x_scales = nullptr;
  float factor = 1;
  // kF8E4M3: whether tensor cores may accumulate in lower precision.
  bool fast_accumulation = false;
  void* workspace = nullptr;  // Options::workspace_bytes bytes, aligned to 256 bytes
};

enum class LibraryOutcome : uint8_t {
  kEnqueued,
  kRefused,  // nothing was enqueued, because the library has no algorithm for the product
  kFailed,   // the failure is recorded in the stream
};

// Ownership: the device outlives it. Thread safety: one thread at a time.
class LibraryLinear {
 public:
  struct Options {
    std::string library = {};            // see CublasLtLibrary::OpenFor
    std::filesystem::path tactics = {};  // see TacticCache
    int64_t workspace_bytes = 0;
  };
  // Opens the library and initializes it for the device.
  static Result<std::unique_ptr<LibraryLinear>> Create(Device& device, Options options);
  ~LibraryLinear();
  LibraryLinear(const LibraryLinear&) = delete;
  LibraryLinear& operator=(const LibraryLinear&) = delete;

  // Whether the library may support kF8E4M3 products with row scales of W and of x. cuBLASLt's
  // documentation lists only compute capability 9.0; on 10.x and gfx950, the results of Run and
  // CanRun decide.
  bool HasRowScales() const;
  // Whether kF4E2M1 products are supported.
  bool HasNvF4() const;
  // Whether Run would find an algorithm. Asks the library only if the answer for this kind and size
  // is not known.
  bool CanRun(const LibraryProduct& product);
  // Enqueues the product with the algorithm that Tune found for products of this kind, else with
  // the first that the library proposes.
  LibraryOutcome Run(const StreamHandle& stream, const LibraryProduct& product);
  // Measures the algorithms that the library proposes for one kind of product, and stores the
  // fastest one, unless one is already stored for this kind. `products` are of this kind; launches
  // use them in turn. Waits for the stream.
  Status Tune(DeviceStream& stream, std::span<const LibraryProduct> products);
  TacticCache& tactics() { return tactics_; }

  std::string Describe() const { return library_->Describe(); }
  // The number of rows with which products of `m` rows are measured: m rounded up to a power of
  // two.
  static int64_t Bucket(int64_t m);

 private:
  class Description;  // a product in the form that the library needs, except for its addresses

  // Products of one shape share their descriptors.
  struct Shape {
    int64_t m, n, k, y_stride;
    ElementType type, y_type;
    bool scaled, fast;
    auto operator<=>(const Shape&) const = default;  // NOLINT(modernize-use-nullptr)
  };

  // Products of a kind share an algorithm.
  struct Kind {
    int64_t n, k, bucket, y_stride;
    ElementType type, y_type;
    bool scaled, fast;
    auto operator<=>(const Kind&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  struct Choice {
    bool refused = false;
    bool tuned = false;
    cublaslt::Algorithm measured{};   // the fastest one, if tuned
    cublaslt::Algorithm algorithm{};  // `measured`, or a proposal for an m that excludes it
    size_t workspace_bytes = 0;
    int64_t checked_m = 0;  // the last m for which the library accepted the algorithm
  };

  LibraryLinear(Device& device, Options options, std::unique_ptr<const CublasLtLibrary> library);
  static Kind KindOf(const LibraryProduct& product);
  static std::string KeyOf(const Kind& kind);
  // Returns the descriptors of the product, which are created at the first call for its shape. They
  // contain the product's scales until the next call. Null if the library does not support a part
  // of the product.
  const Description* DescriptionOf(const LibraryProduct& product);
  // The choice for exactly this product; it is valid for the product's m.
  const Choice& Choose(const LibraryProduct& product, const Description& description);
  // Gets up to `count` proposals of the library and keeps those that can run. Returns the number of
  // these.
  int Propose(const Description& description, int count, cublaslt::Heuristic* proposals) const;
  // Returns whether the algorithm can compute the product. Sets `workspace_bytes` to the size that
  // it needs.
  bool Check(const Description& description, const cublaslt::Algorithm& algorithm,
             size_t& workspace_bytes) const;
  LibraryOutcome Multiply(const StreamHandle& stream, const LibraryProduct& product,
                          const Description& description, const cublaslt::Algorithm& algorithm,
                          size_t workspace_bytes) const;

  Device& device_;
  const Options options_;
  const std::unique_ptr<const CublasLtLibrary> library_;
  const cublaslt::Functions& f_;
  cublaslt::Handle handle_ = nullptr;
  TacticCache tactics_;
  std::map<Kind, Choice> choices_;
  std::map<Shape, std::unique_ptr<Description>> descriptions_;
};

}  // namespace sluice::device
