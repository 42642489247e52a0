// The ways to compute a dense product on a device, and which of them a product allows. Pure
// functions; device_linear.h measures which way is fastest.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/cuda/device_kernels.h"

namespace sluice::device {

// Listed in the order in which they are tried without a measurement. "Fast": tensor cores
// accumulate E4M3 products in lower precision.
enum class LinearWay : uint8_t {
  kOneScale,    // library, E4M3; the scales of W and x are a single factor
  kRowScales,   // library, E4M3; it applies row scales of W and of x
  kPartScales,  // library, E4M3; one call per part of W's rows with the same scale
  kPlain,       // library, BF16 or E4M3; scales, if any, are applied afterwards
  kNvF4,        // library, NVFP4 by NVFP4; scales as a single factor, or afterwards
  kNvF4Parts,   // like kNvF4, with one call per part of W's rows
  kExpanded,    // library, with weights expanded to BF16
  kFastOneScale,
  kFastRowScales,
  kFastPartScales,
  kFastPlain,
  kGroups,  // our own kernels for compute capability 9.0 (linear_f8_groups.cu)
  kOwn,     // our own kernels; always possible
};
constexpr int kNumLinearWays = static_cast<int>(LinearWay::kOwn) + 1;

// Returns, for example, "own kernels" or "library, scales of rows, fast sums". Names are distinct
// and have at most 40 characters.
std::string_view NameOf(LinearWay way);
bool HasFastSums(LinearWay way);

class LinearWays {
 public:
  void Add(LinearWay way) { bits_ = static_cast<uint16_t>(bits_ | Bit(way)); }
  void Remove(LinearWay way) { bits_ = static_cast<uint16_t>(bits_ & ~Bit(way)); }
  bool Has(LinearWay way) const { return (bits_ & Bit(way)) != 0; }
  bool IsOwnAlone() const { return bits_ == Bit(LinearWay::kOwn); }
  uint16_t bits() const { return bits_; }

 private:
  static unsigned Bit(LinearWay way) { return 1u << static_cast<int>(way); }
  uint16_t bits_ = 0;
};

// Capabilities of the vendor's library and of the device.
struct LinearAbilities {
  bool library = false;
  bool e4m3 = true;         // whether it multiplies E4M3 codes if the device does
  bool row_scales = false;  // whether it applies row scales in E4M3 products
  bool nvf4 = false;
  bool fast_sums = false;  // allowed by the options
  bool groups = false;     // whether the device has our own products of warpgroups
  int compute_capability = 0;
};

// Products of fewer rows use our own kernels, except for NVFP4. Our kernels read each weight once,
// and only these reads determine their time.
constexpr int64_t kMinLibraryRows = 9;
// Products of more rows do not use kGroups, whose tiles have up to 64 rows.
constexpr int64_t kMostGroupRows = 128;

// Returns the ways that the product allows, always including kOwn. Does not ask whether the library
// has an algorithm.
LinearWays WaysOf(const LinearArgs& args, const LinearAbilities& abilities);

// Returns whether the row scales of W and of x are a single factor of the whole product.
bool HasOneScale(const LinearArgs& args);
// Returns whether W consists of parts with one scale each, and x has a single scale.
bool HasPartScales(const LinearArgs& args);
// Returns whether the inputs were rounded to NVFP4.
bool HasNvF4Inputs(const LinearArgs& args);

}  // namespace sluice::device
