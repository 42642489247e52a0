// The ways in which a dense product can be computed on a device, and which of them a product
// allows. Pure functions; which one is the fastest is measured (device_linear.h).
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/cuda/device_kernels.h"

namespace sluice::device {

// In the order in which they are tried where nothing was measured. "Fast": E4M3 products are added
// up in the tensor cores' own, lower precision.
enum class LinearWay : uint8_t {
  kOneScale,    // the library, E4M3; the scales of W and x are one factor
  kRowScales,   // the library, E4M3; it applies scales of rows of W and of x
  kPartScales,  // the library, E4M3; a call for each part of W's rows that has one scale
  kPlain,       // the library, BF16 or E4M3; what there is of scales is applied afterwards
  kNvF4,        // the library, NVFP4 by NVFP4; scales as one factor, or afterwards
  kNvF4Parts,   // the same with a call for each part of W's rows
  kExpanded,    // the library, from weights that are expanded to BF16
  kFastOneScale,
  kFastRowScales,
  kFastPartScales,
  kFastPlain,
  kOwn,  // this program's kernels; always possible
};
constexpr int kNumLinearWays = static_cast<int>(LinearWay::kOwn) + 1;

// "own kernels", "scales of rows, fast sums": distinct, at most 40 characters.
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

// What the vendor's library and the device can do.
struct LinearAbilities {
  bool library = false;
  bool row_scales = false;  // of E4M3 products
  bool nvf4 = false;
  bool fast_sums = false;  // they may be used
  int compute_capability = 0;
};

// Below so many rows, products are own kernels' but for NVFP4: each weight is read once then, and
// nothing else counts.
constexpr int64_t kMinLibraryRows = 9;

// The ways that are open to the product, kOwn always among them. Whether the library has an
// algorithm for one is not asked.
LinearWays WaysOf(const LinearArgs& args, const LinearAbilities& abilities);

// Whether the scales of rows of W and of x are a factor of the whole product.
bool HasOneScale(const LinearArgs& args);
// Whether W is in parts that have one scale each, and so has x.
bool HasPartScales(const LinearArgs& args);
// Inputs that were rounded to NVFP4.
bool HasNvF4Inputs(const LinearArgs& args);

}  // namespace sluice::device
