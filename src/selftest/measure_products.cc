// Measures the matrix products of Llama 3 70B's layers: with few rows, where reading the weights
// limits the speed, and with many, where arithmetic does.
#include <fmt/format.h>

#include "selftest/measure_run.h"
#include "selftest/measured_products.h"

namespace sluice::selftest {

using checks::CaseMemory;
using checks::DeviceUnderTest;
using checks::WeightFormat;
using checks::WeightFormats;

namespace {

// Returns whether the recipes or the report's targets name the format.
bool IsMeasured(const DeviceUnderTest& device, const WeightFormat& format) {
  if (format.e4m3_inputs && !device.has_e4m3_products()) return false;
  if (format.nvf4_inputs && !device.has_nvf4_products()) return false;
  if (format.mxf4_inputs && !device.has_mxf4_products()) return false;
  return format.type != ElementType::kI8 && !format.is_only_checked;
}

std::unique_ptr<device::DeviceLinear> Products(MeasureRun& run, const char* name) {
  auto products = device::DeviceLinear::Create(run.device().device(), run.device().kernels(), {});
  if (!products) {
    run.Skip(name, "", products.error().message);
    return nullptr;
  }
  return *std::move(products);
}

void MeasureProduct(MeasureRun& run, device::DeviceLinear& products, MeasuredShape shape,
                    const WeightFormat& format, int64_t m, bool is_skinny) {
  shape.n = run.Size(shape.n, 64);
  shape.k = run.Size(shape.k, 256);
  CaseMemory memory(run.device());
  const int64_t copies =
      is_skinny ? run.CopiesBeyondCache(MeasuredProduct::WeightBytes(format, shape.n, shape.k)) : 1;
  const MeasuredProduct product(run.device(), memory, products, format, m, shape.n, shape.k,
                                copies);
  std::string text = fmt::format("{} x {} x {}, {}", m, shape.n, shape.k, format.name);
  if (memory.ok()) {
    if (const Status tuned = products.Tune(run.device().stream(), product.all()); !tuned) {
      run.Skip(shape.name, text, tuned.error().message);
      return;
    }
  }
  // The way to compute the product is chosen by the same rules as when a model is loaded.
  text += fmt::format(", by {}", NameOf(products.Choose(product.args(0))));
  // Codes whose inputs are not quantized are multiplied in BF16.
  // No library's product of MXFP4 inputs is measured to compare with.
  const double peak = format.mxf4_inputs   ? 0
                      : format.e4m3_inputs ? run.limits().fp8_teraflops
                      : format.nvf4_inputs ? run.limits().nvf4_teraflops
                                           : run.limits().bf16_teraflops;
  run.Measure({.name = shape.name,
               .shape = text,
               .unit = is_skinny ? MeasureUnit::kGigabytes : MeasureUnit::kTeraflops,
               .amount = is_skinny ? product.bytes() : product.flops(),
               .limit = is_skinny ? run.limits().copy_gigabytes : peak},
              memory,
              [&](int64_t turn) { products.Run(run.device().stream(), product.args(turn)); });
}

}  // namespace

void MeasureSkinnyProducts(MeasureRun& run) {
  const auto products = Products(run, "skinny products");
  if (products == nullptr) return;
  for (const WeightFormat& format : WeightFormats()) {
    if (!IsMeasured(run.device(), format)) continue;
    for (const MeasuredShape& shape : kLlama70Layers) {
      for (const int64_t m : {1, 8, 16, 32, 64}) {
        if (!run.lost()) MeasureProduct(run, *products, shape, format, m, /*is_skinny=*/true);
      }
    }
  }
}

void MeasureLargeProducts(MeasureRun& run) {
  const auto products = Products(run, "large products");
  if (products == nullptr) return;
  for (const WeightFormat& format : WeightFormats()) {
    if (!IsMeasured(run.device(), format)) continue;
    for (const MeasuredShape& shape : kLlama70Layers) {
      for (const int64_t m : {run.Size(1024, 80), run.Size(8192, 96)}) {
        if (!run.lost()) MeasureProduct(run, *products, shape, format, m, /*is_skinny=*/false);
      }
    }
  }
}

}  // namespace sluice::selftest
