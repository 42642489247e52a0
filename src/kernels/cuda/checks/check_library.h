// Products of many rows, as a model gives them to DeviceLinear: by the vendor's library, or by own
// kernels where that does not serve them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/checks/check_run.h"
#include "kernels/cuda/checks/products.h"
#include "kernels/cuda/checks/test_weights.h"
#include "kernels/cuda/device_linear.h"

namespace sluice::checks {

struct ModelProductCase {
  int64_t m, n, k;
  const WeightFormat& format;
  NumberKind kind = NumberKind::kIntegers;
  ElementType y_type = ElementType::kF32;
  bool has_bias = false;
  // 0: the rows of W, and those of x, have scales of their own; else all have this one.
  float same_scale = 0;
  // But the first rows of W this one.
  int64_t first_rows = 0;
  float first_scale = 1;
  // The host is told the scales that are one number, as it is those of a checkpoint.
  bool tells_scales = false;
};

// Operands on the device, and the exact results.
class ModelProduct {
 public:
  ModelProduct(CaseMemory& memory, const ModelProductCase& test);

  // All but y and the scratch, which the following make anew.
  device::LinearArgs& args() { return args_; }
  const device::LinearArgs& PrepareResults(const device::DeviceLinear& products);
  void Tune(device::DeviceLinear& products);
  // Runs the product and compares sampled results.
  void Run(device::DeviceLinear& products, Comparison& comparison);
  // The same in each way that the product allows. Returns the names of those that the library
  // refuses.
  std::vector<std::string> RunInEveryWay(device::DeviceLinear& products, Comparison& comparison);

 private:
  void TellScales();
  // `way`: how it was computed, which says how often it was rounded.
  void Compare(device::LinearWay way, Comparison& comparison) const;

  CaseMemory& memory_;
  ModelProductCase case_;
  TestWeights weights_;
  TestInputs x_;
  std::vector<float> bias_;
  device::LinearArgs args_{};
  std::optional<ProductOutput> y_;
};

// Checks what DeviceLinear makes of such products with these options; skips where it would not use
// a library, and the ways that it refuses, by name. `most_shapes`: of the small ones.
void CheckLibraryProducts(CheckRun& run, const device::DeviceLinearOptions& options,
                          size_t most_shapes = ~size_t{0});

}  // namespace sluice::checks
