// Every dense product of a model on a device, and by which kernels it runs.
//
// Own kernels, or the vendor's library (cuBLASLt), found when the program runs: BF16 and E4M3
// weights as they are, NVFP4 weights that meet NVFP4 inputs on Blackwell too, all others expanded
// to BF16 a chunk of rows at a time. Which of the ways that a product allows (linear_ways.h) is the
// fastest, Tune measures for each shape and each bucket of rows, at a model's start. What the
// library is not there for, or refuses, own kernels serve as well. NVFP4 inputs are the same
// numbers whichever way they go (RowScale::kNvF4).
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "kernels/cuda/device_kernels.h"
#include "kernels/cuda/linear_ways.h"

namespace sluice::device {

class LibraryLinear;
struct LibraryProduct;

// Products of up to so many rows run by own kernels where nothing was measured.
constexpr int64_t kMaxSkinnyRows = 64;

struct DeviceLinearOptions {
  bool use_library = true;  // false: own kernels alone
  // A row's result is bit for bit the same whatever the other rows of its step: own kernels alone,
  // whose order of sums depends on the weights' shape alone.
  bool batch_invariant = false;
  // E4M3 products may be added up in the tensor cores' own, lower precision, where that is faster.
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
  // Those that the library would have been given, but refused: by own kernels, or from expanded
  // weights.
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

  // The numbers of rows to call Tune with, for steps of up to `max_m` rows: one of each bucket in
  // which there may be a choice; empty where the library is not used.
  std::vector<int64_t> TuningRows(int64_t max_m) const;
  // Measures the ways that the product allows, each by the library's fastest algorithm for it, and
  // keeps the best for all products of its kind, unless it is known already. `layers`: the product
  // with the weights of several layers, at least one. As many of them take turns as the device's
  // cache cannot hold, at most kMostRotatedLayers; those of another kind than the first are left
  // out. The products run, many times. Waits for the stream; never while a graph is captured. y and
  // x as in Run, of args.m rows; what they hold does not matter.
  Status Tune(DeviceStream& stream, std::span<const LinearArgs> layers);
  Status Tune(DeviceStream& stream, const LinearArgs& args) { return Tune(stream, {&args, 1}); }
  static constexpr int64_t kMostRotatedLayers = 16;
  // Writes what Tune found, where there is something new and a place for it. Where that fails the
  // log says so: what is not kept is measured again at the next start.
  void SaveTactics();

  // The way that Run tries first.
  LinearWay Choose(const LinearArgs& args);
  // For checks: the ways that the product allows, and Run in one of them. False: the library
  // refused it, and y is as it was.
  LinearWays WaysOf(const LinearArgs& args) const { return device::WaysOf(args, abilities_); }
  bool RunBy(LinearWay way, DeviceStream& stream, const LinearArgs& args) {
    return TryRun(way, stream.handle(), args);
  }

  // "cuBLASLt 13.0.2 (path)", or "" where own kernels serve everything.
  std::string library() const;
  const DeviceLinearCounts& counts() const { return counts_; }

 private:
  DeviceLinear(Device& device, const DeviceKernels& kernels, const DeviceLinearOptions& options);

  // Products of a kind are computed in the same way.
  struct Kind {
    int64_t n, k, bucket, y_stride;
    ElementType w_type, x_type, y_type;
    GroupScales group_type;
    bool has_bias;
    uint16_t ways;
    auto operator<=>(const Kind&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  struct Choice {
    LinearWay way = LinearWay::kOwn;
    bool measured = false;
  };
  static Kind KindOf(const LinearArgs& args, LinearWays ways);
  static std::string KeyOf(const Kind& kind);
  const Choice& ChoiceOf(const Kind& kind, int64_t m);

  // The products of `args` in this way: one, one a part, or one a chunk of expanded weights; with
  // addresses in the scratch where inputs are packed or weights expanded.
  std::vector<LibraryProduct> ProductsFor(LinearWay way, const LinearArgs& args) const;
  // Enqueues the product in this way; false: refused, and nothing was enqueued that matters.
  bool TryRun(LinearWay way, const StreamHandle& stream, const LinearArgs& args);
  // What comes before one of the products, that of W's rows from `first_row` on: packed inputs,
  // expanded weights.
  void PrepareOperands(LinearWay way, const StreamHandle& stream, const LinearArgs& args,
                       const LibraryProduct& product, int64_t first_row);
  // The ways of `ways` that are worth measuring: not those that round BF16 results twice where
  // another does not.
  LinearWays Candidates(const LinearArgs& args, LinearWays ways);
  Result<LinearWay> Measure(DeviceStream& stream, std::span<const LinearArgs> layers,
                            LinearWays candidates, double& seconds);
  // Applies what the library did not: scales of rows and the bias.
  void FinishResults(LinearWay way, const StreamHandle& stream, const LinearArgs& args);
  // Counts, and says in the log once for each shape what serves it instead.
  void NoteRefused(const LinearArgs& args, const char* inputs, const char* instead);

  Device& device_;
  const DeviceKernels& kernels_;
  const DeviceLinearOptions options_;
  LinearAbilities abilities_;
  std::unique_ptr<LibraryLinear> library_;  // null: own kernels alone
  DeviceLinearCounts counts_;
  std::map<Kind, Choice> choices_;
  std::set<std::string> refused_shapes_;  // that the log has named
};

}  // namespace sluice::device
