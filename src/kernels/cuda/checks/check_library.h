// Checks products of many rows as a model runs them with DeviceLinear: by the vendor's library, or
// by our own kernels if that does not support them.
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
  // 0: every row of W, and of x, has a separate scale. Otherwise all rows have this scale.
  float same_scale = 0;
  // The first `first_rows` rows of W have the scale first_scale instead.
  int64_t first_rows = 0;
  float first_scale = 1;
  // Whether the product's arguments state which scales are equal, as for a checkpoint
  // (Weights::same_row_scale and parts).
  bool tells_scales = false;
};

// Operands on the device, and the exact results.
class ModelProduct {
 public:
  ModelProduct(CaseMemory& memory, const ModelProductCase& test);

  // Returns all arguments except y and the scratch, which each function below allocates.
  device::LinearArgs& args() { return args_; }
  const device::LinearArgs& PrepareResults(const device::DeviceLinear& products);
  void Tune(device::DeviceLinear& products);
  // Runs the product and compares sampled results.
  void Run(device::DeviceLinear& products, Comparison& comparison);
  // Runs and compares the product in each way that is possible for it. Returns the names of the
  // ways that the library refused.
  std::vector<std::string> RunInEveryWay(device::DeviceLinear& products, Comparison& comparison);

 private:
  void TellScales();
  // `way`: how it was computed, which determines the number of roundings.
  void Compare(device::LinearWay way, Comparison& comparison) const;

  CaseMemory& memory_;
  ModelProductCase case_;
  TestWeights weights_;
  TestInputs x_;
  std::vector<float> bias_;
  device::LinearArgs args_{};
  std::optional<ProductOutput> y_;
};

// Checks the products that DeviceLinear computes with these options. If no library would be used,
// skips them; reports each way that the library refuses as skipped. `most_shapes`: maximum number
// of small shapes.
void CheckLibraryProducts(CheckRun& run, const device::DeviceLinearOptions& options,
                          size_t most_shapes = ~size_t{0});

}  // namespace sluice::checks
