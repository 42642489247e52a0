// Products of many rows, as a model gives them to DeviceLinear: by the vendor's library, or by own
// kernels where that does not serve them.
#pragma once

#include <optional>
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

 private:
  // `is_nvf4`: NVFP4 weights met NVFP4 inputs as they are.
  void Compare(bool is_nvf4, Comparison& comparison) const;

  CaseMemory& memory_;
  ModelProductCase case_;
  TestWeights weights_;
  TestInputs x_;
  std::vector<float> bias_;
  device::LinearArgs args_{};
  std::optional<ProductOutput> y_;
};

// Checks what DeviceLinear makes of such products with these options; skips where it would not use
// a library.
void CheckLibraryProducts(CheckRun& run, const device::DeviceLinearOptions& options);

}  // namespace sluice::checks
