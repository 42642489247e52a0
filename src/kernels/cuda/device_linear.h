// Every dense product of a model on a device, and by which kernels it runs.
//
// Steps of few rows are bound by reading the weights: own kernels, which read each weight once.
// Larger steps go to the vendor's library (cuBLASLt), found when the program runs: BF16 and E4M3
// weights as they are, NVFP4 weights that meet NVFP4 inputs on Blackwell too, all others expanded
// to BF16 a chunk of rows at a time. What the library is not there for, or refuses, own kernels
// serve as well. NVFP4 inputs are the same numbers whichever way they go (RowScale::kNvF4).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "kernels/cuda/device_kernels.h"

namespace sluice::device {

class LibraryLinear;
struct LibraryProduct;

// Products of up to so many rows always run by own kernels.
constexpr int64_t kMaxSkinnyRows = 64;

struct DeviceLinearOptions {
  bool use_library = true;  // false: own kernels alone
  // A row's result is bit for bit the same whatever the other rows of its step: own kernels alone,
  // whose order of sums depends on the weights' shape alone.
  bool batch_invariant = false;
  // E4M3 products may be added up in the tensor cores' own, lower precision.
  bool fast_accumulation = false;
  int64_t workspace_bytes = int64_t{32} << 20;  // of scratch, for the library
  int64_t expand_bytes = int64_t{128} << 20;    // of scratch, for expanded weights
  // The library's file; empty: where it usually is (cublaslt_library.h). An emulated device uses a
  // library only where it is named here.
  std::string library = {};
  // Where choices that were measured are kept from one start to the next; empty: nowhere.
  std::filesystem::path tactics = {};
};

// How many products ran by which way.
struct DeviceLinearCounts {
  int64_t own = 0;
  int64_t library = 0;
  int64_t nvf4 = 0;  // of `library`: NVFP4 weights by NVFP4 inputs
  // Those that the library would have been given: by own kernels, or from expanded weights.
  int64_t refused = 0;
};

// Ownership: the device and the kernels outlive it. Thread safety: one thread at a time, and of a
// device one stream: where the sum of a product is split, its blocks count themselves in memory
// that all products of a format share.
class DeviceLinear {
 public:
  // Says in the log which library it found, or why none and what that costs. Fails for a library
  // that was named, here or by SLUICE_CUBLASLT, and cannot be used (CublasLtLibrary::Open), and for
  // sizes that cannot be: kInvalidArgument.
  static Result<std::unique_ptr<DeviceLinear>> Create(Device& device, const DeviceKernels& kernels,
                                                      const DeviceLinearOptions& options);
  ~DeviceLinear();

  // Bytes of LinearArgs::scratch that products of up to `max_m` rows with these weights take (their
  // addresses do not matter). Scratch is aligned to 256 bytes. One piece, as large as the largest
  // need, serves all products of a stream.
  int64_t ScratchBytes(const Weights& w, int64_t max_m) const;

  // The most that ScratchBytes of one created with these options on this device will say: as if the
  // library were found. For plans that are made before a device is opened.
  static int64_t PlannedScratchBytes(const DeviceInfo& info, const DeviceLinearOptions& options,
                                     const Weights& w, int64_t max_m);

  // y = x W^T (+ bias), enqueued. m may be 0.
  void Run(DeviceStream& stream, const LinearArgs& args);

  // The numbers of rows to call Tune with, for steps of up to `max_m` rows; empty where the library
  // is not used.
  std::vector<int64_t> TuningRows(int64_t max_m) const;
  // Measures the library's algorithms for a product of this shape and keeps the best, unless it is
  // known already. The product runs, many times. Waits for the stream; never while a graph is
  // captured. y and x as in Run, of args.m rows; what they hold does not matter.
  Status Tune(DeviceStream& stream, const LinearArgs& args);
  // Writes what Tune found, where there is something new and a place for it. Where that fails the
  // log says so: what is not kept is measured again at the next start.
  void SaveTactics();

  // "cuBLASLt 13.0.2 (path)", or "" where own kernels serve everything.
  std::string library() const;
  const DeviceLinearCounts& counts() const { return counts_; }

 private:
  DeviceLinear(const DeviceKernels& kernels, const DeviceLinearOptions& options,
               int compute_capability);

  // How the library would compute a product: not at all, as it is, from codes that the inputs are
  // packed to, or from expanded weights.
  enum class Way : uint8_t { kOwn, kDirect, kNvF4, kExpanded };
  Way Choose(const LinearArgs& args) const;
  // The product of weights as they are, with the scales that the library takes.
  LibraryProduct DirectProduct(const LinearArgs& args) const;
  // The product of NVFP4 weights as they are, with the inputs packed in the scratch.
  LibraryProduct NvF4Product(const LinearArgs& args) const;
  // False: refused, and to be computed otherwise.
  bool RunNvF4(const StreamHandle& stream, const LinearArgs& args);
  bool RunDirect(const StreamHandle& stream, const LinearArgs& args);
  bool RunExpanded(const StreamHandle& stream, const LinearArgs& args);
  // Applies what the library did not: scales of rows and the bias.
  void FinishResults(const StreamHandle& stream, const LinearArgs& args, const float* row_scales,
                     const float* x_scales);
  // Counts, and says in the log once for each shape what serves it instead.
  void NoteRefused(const LinearArgs& args, const char* inputs, const char* instead);

  const DeviceKernels& kernels_;
  const DeviceLinearOptions options_;
  const int compute_capability_;
  std::unique_ptr<LibraryLinear> library_;  // null: own kernels alone
  DeviceLinearCounts counts_;
  std::set<std::string> refused_shapes_;  // that the log has named
};

}  // namespace sluice::device
