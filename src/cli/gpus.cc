#include "cli/gpus.h"

#include <utility>

#include <fmt/format.h>

#include "cli/progress.h"
#include "device/device_bytes.h"
#include "kernels/cuda/cublaslt_library.h"

namespace sluice::cli {
namespace {

Result<int64_t> FreeBytesOf(int ordinal) {
  ASSIGN_OR_RETURN(const auto device, OpenDevice(DeviceKind::kCuda, ordinal));
  return device->FreeBytes();
}

}  // namespace

json::Value DeviceJson(const DeviceInfo& info) {
  json::Value object{json::Value::Object{}};
  object.Set("kind", DeviceKindName(info.kind));
  object.Set("index", info.ordinal);
  object.Set("name", info.name);
  object.Set("uuid", info.uuid);
  object.Set("compute_capability", fmt::format("{}.{}", info.compute_major, info.compute_minor));
  object.Set("multiprocessors", info.num_multiprocessors);
  object.Set("memory_total_bytes", info.total_bytes);
  object.Set("memory_bus_bits", info.memory_bus_bits);
  object.Set("l2_bytes", info.l2_bytes);
  object.Set("driver_cuda_version", CudaVersionText(info.driver_version));
  object.Set("runtime_cuda_version", CudaVersionText(info.runtime_version));
  return object;
}

GpuFindings ExamineGpus() {
  GpuFindings findings;
  auto devices = ListCudaDevices();
  if (!devices) {
    findings.reason = std::move(devices).error().message;
    return findings;
  }
  for (DeviceInfo& info : *devices) {
    GpuFinding& gpu = findings.gpus.emplace_back();
    gpu.info = std::move(info);
    auto free = FreeBytesOf(gpu.info.ordinal);
    if (free)
      gpu.free_bytes = *free;
    else
      gpu.problem = std::move(free).error().message;
  }
  auto library = device::CublasLtLibrary::Open("");
  findings.library = library ? (*library)->Describe() : std::move(library).error().message;
  return findings;
}

std::string GpuLines(const GpuFindings& findings) {
  if (findings.gpus.empty()) return fmt::format("gpus       none: {}\n", findings.reason);
  std::string text;
  for (const GpuFinding& gpu : findings.gpus) {
    const std::string memory = gpu.problem.empty()
                                   ? fmt::format("{} free of {}", FormatBytes(gpu.free_bytes),
                                                 FormatBytes(gpu.info.total_bytes))
                                   : FormatBytes(gpu.info.total_bytes);
    text +=
        fmt::format("{:<10} {}, {}, compute capability {}.{}, {} multiprocessors\n",
                    fmt::format("gpu {}", gpu.info.ordinal), gpu.info.name, memory,
                    gpu.info.compute_major, gpu.info.compute_minor, gpu.info.num_multiprocessors);
    text += fmt::format("           driver for CUDA {}, program built with CUDA {}\n",
                        CudaVersionText(gpu.info.driver_version),
                        CudaVersionText(gpu.info.runtime_version));
    if (!gpu.problem.empty()) text += fmt::format("           cannot be used: {}\n", gpu.problem);
  }
  return text + fmt::format("products   of many rows: {}\n", findings.library);
}

void AddGpuFields(const GpuFindings& findings, json::Value& object) {
  json::Value::Array gpus;
  for (const GpuFinding& gpu : findings.gpus) {
    json::Value& entry = gpus.emplace_back(DeviceJson(gpu.info));
    entry.Set("memory_free_bytes",
              gpu.problem.empty() ? json::Value(gpu.free_bytes) : json::Value());
    entry.Set("problem", gpu.problem.empty() ? json::Value() : json::Value(gpu.problem));
  }
  object.Set("gpus", json::Value(std::move(gpus)));
  object.Set("gpus_reason", findings.gpus.empty() ? json::Value(findings.reason) : json::Value());
  object.Set("cublaslt", findings.gpus.empty() ? json::Value() : json::Value(findings.library));
}

}  // namespace sluice::cli
