// Measures the device's limits, with which all other figures are compared.
#include <fmt/format.h>

#include "base/thread_pool.h"
#include "device/uploader.h"
#include "hardware/topology.h"
#include "kernels/cuda/cublaslt_library.h"
#include "selftest/measure_run.h"
#include "selftest/measured_products.h"

namespace sluice::selftest {

using checks::CaseMemory;
using checks::WeightFormat;
using checks::WeightFormats;

namespace {

void MeasureCopies(MeasureRun& run) {
  const int64_t bytes = run.Size(int64_t{2} << 30, 1 << 16);
  DeviceStream& stream = run.device().stream();
  CaseMemory memory(run.device());
  uint8_t* first = memory.Out<uint8_t>(bytes);
  uint8_t* second = memory.Out<uint8_t>(bytes);
  run.limits().copy_gigabytes = run.Measure(
      {.name = "copy on the device",
       .shape = "2 GiB, read and written",
       .amount = 2.0 * static_cast<double>(bytes)},
      memory, [&](int64_t turn) {
        stream.CopyOnDevice(turn % 2 == 0 ? second : first, turn % 2 == 0 ? first : second, bytes);
      });
}

// Measures an upload like that of a model's weights: from memory that is not page-locked, through
// two page-locked buffers.
void MeasureUpload(MeasureRun& run, double bus_gigabytes) {
  const int64_t bytes = run.Size(int64_t{2} << 30, 1 << 16);
  const MeasureRun::Work work = {.name = "upload of weights",
                                 .shape = "2 GiB of the host's memory",
                                 .amount = static_cast<double>(bytes),
                                 .limit = bus_gigabytes};
  const auto measure = [&]() -> Result<double> {
    ThreadPool pool(DetectTopology().DefaultThreads());
    const std::vector<uint8_t> weights(static_cast<size_t>(bytes), 1);
    ASSIGN_OR_RETURN(const DeviceBuffer place, run.device().device().Allocate(bytes, "an upload"));
    ASSIGN_OR_RETURN(Uploader uploader, Uploader::Create(run.device().device()));
    RETURN_IF_ERROR(uploader.Copy(pool, place.data(), weights.data(), bytes));
    RETURN_IF_ERROR(uploader.Finish());
    return work.amount / uploader.bytes_per_second();
  };
  const Result<double> seconds = measure();
  if (!seconds) {
    run.Skip(work.name, work.shape, seconds.error().message);
    return;
  }
  run.Note(work, *seconds);
}

void MeasureBus(MeasureRun& run) {
  const int64_t bytes = run.Size(int64_t{256} << 20, 1 << 16);
  DeviceStream& stream = run.device().stream();
  CaseMemory memory(run.device());
  uint8_t* on_device = memory.Out<uint8_t>(bytes);
  auto pinned = run.device().device().AllocatePinned(bytes, "measuring the bus");
  if (!pinned) {
    run.Skip("host to device", "256 MiB, pinned", pinned.error().message);
    return;
  }
  const double bus = run.Measure(
      {.name = "host to device", .shape = "256 MiB, pinned", .amount = static_cast<double>(bytes)},
      memory, [&](int64_t) { stream.CopyToDevice(on_device, pinned->data(), bytes); });
  run.Measure(
      {.name = "device to host", .shape = "256 MiB, pinned", .amount = static_cast<double>(bytes)},
      memory, [&](int64_t) { stream.CopyToHost(pinned->data(), on_device, bytes); });
  MeasureUpload(run, bus);
}

// Returns the speed of the fastest product of 8192^3, which is the measured peak of the tensor
// cores.
double MeasurePeak(MeasureRun& run, device::DeviceLinear& products, const WeightFormat& format,
                   const std::string& how = "") {
  const int64_t size = run.Size(8192, 128);
  CaseMemory memory(run.device());
  const MeasuredProduct product(run.device(), memory, products, format, size, size, size, 1);
  if (memory.ok()) {
    const Status tuned = products.Tune(run.device().stream(), product.args(0));
    if (!tuned) {
      run.Skip("peak", format.name, tuned.error().message);
      return 0;
    }
  }
  return run.Measure(
      {.name = "library's product",
       .shape = fmt::format("8192 x 8192 x 8192, {}{}, by {}", format.name, how,
                            NameOf(products.Choose(product.args(0)))),
       .unit = MeasureUnit::kTeraflops,
       .amount = product.flops()},
      memory, [&](int64_t turn) { products.Run(run.device().stream(), product.args(turn)); });
}

// Measures the speedup of sums in the tensor cores' own precision (--fast-accumulation).
void MeasureFastSums(MeasureRun& run, const WeightFormat& format) {
  const auto products = device::DeviceLinear::Create(run.device().device(), run.device().kernels(),
                                                     {.fast_accumulation = true});
  if (products) MeasurePeak(run, **products, format, ", fast sums allowed");
}

}  // namespace

void MeasureLimitsOfDevice(MeasureRun& run) {
  MeasureCopies(run);
  MeasureBus(run);
  const DeviceKind kind = run.device().device().info().kind;
  const auto products =
      device::DeviceLinear::Create(run.device().device(), run.device().kernels(), {});
  if (!products || (*products)->library().empty()) {
    run.Skip("library's product", "8192 x 8192 x 8192",
             products ? fmt::format("{} was not found, so there is no peak to compare with",
                                    device::CublasLtLibrary::NameFor(kind))
                      : products.error().message);
    return;
  }
  for (const WeightFormat& format : WeightFormats()) {
    if (format.type == ElementType::kBF16)
      run.limits().bf16_teraflops = MeasurePeak(run, **products, format);
    if (format.e4m3_inputs && run.device().has_e4m3_products()) {
      run.limits().fp8_teraflops = MeasurePeak(run, **products, format);
      if (kind != DeviceKind::kHip) MeasureFastSums(run, format);  // hipBLASLt has no fast sums
    }
    if (format.nvf4_inputs && run.device().has_nvf4_products())
      run.limits().nvf4_teraflops = MeasurePeak(run, **products, format);
  }
}

}  // namespace sluice::selftest
