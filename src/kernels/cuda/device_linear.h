// Computes all dense products of a model on a device, and chooses the kernels for them.
//
// A product runs on our own kernels or on the vendor's library (cuBLASLt, hipBLASLt), found at run
// time. The library takes BF16 and E4M3 weights as they are, on Blackwell also NVFP4 weights with
// NVFP4 inputs; other weights are expanded to BF16, a chunk of rows at a time. When a model starts,
// Tune measures which of a product's possible ways (linear_ways.h) is fastest, for each shape and
// each bucket of rows. If the library is missing or refuses a product, our own kernels compute it.
// NVFP4 inputs have the same values in every way (RowScale::kNvF4), and so have MXFP4 inputs
// (RowScale::kMxF4). On a GPU whose matrix instructions multiply MXFP4 codes (MultipliesMxF4), our
// own kernels multiply MXFP4 inputs as codes, which Run packs.
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

// Products of at most this many rows use our own kernels if no tactic was measured.
constexpr int64_t kMaxSkinnyRows = 64;

// Rows of NVFP4 as codes and group scales (RowsOut); nulls: not packed.
struct PackedRows {
  uint8_t* codes = nullptr;
  uint8_t* scales = nullptr;
};

struct DeviceLinearOptions {
  bool use_library = true;  // false: only our own kernels
  // Whether a row's result must be bit-identical for any other rows in its step. Then only our own
  // kernels are used, because their order of sums depends only on the weights' shape.
  bool batch_invariant = false;
  // Whether the tensor cores may accumulate E4M3 products in their lower precision, if that is
  // faster.
  bool fast_accumulation = false;
  int64_t workspace_bytes = int64_t{32} << 20;  // scratch for the library
  int64_t expand_bytes = int64_t{128} << 20;    // scratch for expanded weights
  // The library's file; empty: the usual files (cublaslt_library.h). An emulated device uses a
  // library only if this is set.
  std::string library = {};
  // File that stores measured choices between starts; empty: none.
  std::filesystem::path tactics = {};
  // For tests: whether rows of NVFP4 are always packed by a separate kernel. Does not change
  // results.
  bool packs_apart = false;
};

// Returns whether the device's matrix instructions multiply MXFP4 codes by MXFP4 codes: gfx950.
bool MultipliesMxF4(const DeviceInfo& info);

// Numbers of products, by the way in which they were computed.
struct DeviceLinearCounts {
  int64_t own = 0;
  int64_t library = 0;
  int64_t nvf4 = 0;  // those of `library` that multiply NVFP4 weights by NVFP4 inputs
  int64_t mxf4 = 0;  // those of `own` that multiply MXFP4 weights by codes of MXFP4 inputs
  // Products that the library refused. Our own kernels computed them, or the library computed them
  // from expanded weights.
  int64_t refused = 0;
};

// Ownership: the device and the kernels outlive it. Thread safety: one thread at a time, and one
// stream per device. All products of a format share the memory that counts the blocks of a split
// product.
class DeviceLinear {
 public:
  // Logs which library it found, or why it found none and how that affects speed. Fails if a
  // library was named, here or by SLUICE_CUBLASLT or SLUICE_HIPBLASLT, but cannot be used
  // (CublasLtLibrary::OpenFor); kInvalidArgument for impossible sizes.
  static Result<std::unique_ptr<DeviceLinear>> Create(Device& device, const DeviceKernels& kernels,
                                                      const DeviceLinearOptions& options);
  ~DeviceLinear();

  // Returns the bytes of LinearArgs::scratch for products of up to `max_m` rows with these weights
  // (addresses in `w` do not matter). `x_is_mxf4`: LinearArgs::x_is_mxf4. Scratch is aligned to 256
  // bytes. One allocation of the largest size serves all products of a stream.
  int64_t ScratchBytes(const Weights& w, int64_t max_m, bool x_is_mxf4 = false) const;

  // Returns an upper bound of ScratchBytes for these options on this device, assuming that the
  // library is found. For plans made before a device is opened.
  static int64_t PlannedScratchBytes(const DeviceInfo& info, const DeviceLinearOptions& options,
                                     const Weights& w, int64_t max_m, bool x_is_mxf4 = false);

  // Enqueues y = x W^T (+ bias). m may be 0. `packed`: the rows of x in the memory of PlaceToPack,
  // if the kernel that wrote them packed them; else Run packs them if it needs codes.
  void Run(DeviceStream& stream, const LinearArgs& args, const PackedRows& packed = {});
  // Enqueues the products of all experts by our own kernels. Scratch: ScratchBytes for the rows of
  // all experts together.
  void RunGrouped(DeviceStream& stream, const GroupedLinearArgs& args);

  // Divides memory, aligned to 256 bytes, for m rows of k numbers.
  static PackedRows PackedIn(void* memory, int64_t m, int64_t k);
  // Returns the addresses where the kernel that writes the rows of `args` should pack them.
  // `memory`: PlannedPackedBytes bytes. Null addresses if Run would not read packed rows.
  PackedRows PlaceToPack(const LinearArgs& args, void* memory);
  // Returns an upper bound of the memory that PlaceToPack needs for products of up to `max_m` rows
  // with these weights; 0 if rows are never packed there. For plans made before a device is opened.
  static int64_t PlannedPackedBytes(const DeviceInfo& info, const DeviceLinearOptions& options,
                                    const Weights& w, int64_t max_m);

  // Returns the numbers of rows to call Tune with, for steps of up to `max_m` rows: one for each
  // bucket in which there may be a choice. Empty if the library is not used.
  std::vector<int64_t> TuningRows(int64_t max_m) const;
  // Measures the ways that the product allows, each with the library's fastest algorithm, and
  // stores the best for all products of its kind. Does nothing if the best is already known.
  // `layers`: the product with the weights of several layers, at least one. Launches cycle through
  // the layers: enough to exceed the device's cache, at most kMostRotatedLayers, and only those of
  // the same kind as the first. Runs the products many times. Waits for the stream; must not be
  // called during graph capture. y and x as in Run, of args.m rows; their contents do not matter.
  // `packed`: where the rows of x will be packed before Run, so that packing is not measured;
  // nulls: Run packs them.
  Status Tune(DeviceStream& stream, std::span<const LinearArgs> layers,
              const PackedRows& packed = {});
  Status Tune(DeviceStream& stream, const LinearArgs& args) { return Tune(stream, {&args, 1}); }
  static constexpr int64_t kMostRotatedLayers = 16;
  // Writes new results of Tune to the file, if there is one. A failure is only logged: results that
  // are not saved are measured again at the next start.
  void SaveTactics();

  // Returns the way that Run tries first.
  LinearWay Choose(const LinearArgs& args);
  // For checks: WaysOf returns the ways that the product allows, and RunBy runs it in one of them.
  // RunBy returns false if the library refused; then y is unchanged.
  LinearWays WaysOf(const LinearArgs& args) const { return device::WaysOf(args, abilities_); }
  bool RunBy(LinearWay way, DeviceStream& stream, const LinearArgs& args) {
    return TryRun(way, stream.handle(), args);
  }

  // Returns, for example, "cuBLASLt 13.0.2 (path)"; "" if only our own kernels are used.
  std::string library() const;
  const DeviceLinearCounts& counts() const { return counts_; }

 private:
  DeviceLinear(Device& device, const DeviceKernels& kernels, const DeviceLinearOptions& options);

  // All products of a kind are computed in the same way.
  struct Kind {
    int64_t n, k, bucket, y_stride;
    ElementType w_type, x_type, y_type;
    GroupScales group_type;
    bool has_bias, x_is_mxf4;
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

  // Returns the library products that compute `args` in this way: a single one, one per part, or
  // one per chunk of expanded weights. Operands that are packed or expanded have addresses in the
  // scratch.
  std::vector<LibraryProduct> ProductsFor(LinearWay way, const LinearArgs& args,
                                          const PackedRows& packed = {}) const;
  // Enqueues the product in this way. Returns false if it is refused; then nothing that changes y
  // was enqueued.
  bool TryRun(LinearWay way, const StreamHandle& stream, const LinearArgs& args,
              const PackedRows& packed = {});
  // For our own kernels: if they multiply codes of x, enqueues the packing of x into the scratch
  // and sets where the codes are.
  void PackForOwn(const StreamHandle& stream, LinearArgs& args);
  // Prepares the operands of one of the products, for W's rows from `first_row` on, by packing
  // inputs or expanding weights.
  void PrepareOperands(LinearWay way, const StreamHandle& stream, const LinearArgs& args,
                       const LibraryProduct& product, int64_t first_row);
  // Returns the elements of `ways` that are worth measuring. Omits ways that round BF16 results
  // twice, if another way rounds once.
  LinearWays Candidates(const LinearArgs& args, LinearWays ways);
  Result<LinearWay> Measure(DeviceStream& stream, std::span<const LinearArgs> layers,
                            const PackedRows& packed, LinearWays candidates, double& seconds);
  // Applies row scales and the bias if the library did not.
  void FinishResults(LinearWay way, const StreamHandle& stream, const LinearArgs& args);
  // Counts a refusal, and logs once per shape how the product is computed instead.
  void NoteRefused(const LinearArgs& args, const char* inputs, const char* instead);

  Device& device_;
  const DeviceKernels& kernels_;
  const DeviceLinearOptions options_;
  LinearAbilities abilities_;
  std::unique_ptr<LibraryLinear> library_;  // null: only our own kernels
  DeviceLinearCounts counts_;
  std::map<Kind, Choice> choices_;
  std::set<std::string> refused_shapes_;  // already logged
};

}  // namespace sluice::device
