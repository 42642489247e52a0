#include "cli/gpus.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "cli/progress.h"
#include "device/device_bytes.h"
#include "device/hip_device.h"
#include "kernels/cuda/cublaslt_library.h"

namespace sluice::cli {
namespace {

Result<int64_t> FreeBytesOf(const DeviceInfo& info) {
  ASSIGN_OR_RETURN(const auto device, OpenDevice(info.kind, info.ordinal));
  return device->FreeBytes();
}

std::string VersionsText(const DeviceInfo& info) {
  if (info.kind == DeviceKind::kHip)
    return fmt::format("HIP's runtime {}", HipVersionText(info.runtime_version));
  return fmt::format("driver for CUDA {}, program built with CUDA {}",
                     CudaVersionText(info.driver_version), CudaVersionText(info.runtime_version));
}

bool HasNvidia(const GpuFindings& findings) {
  return std::any_of(findings.gpus.begin(), findings.gpus.end(),
                     [](const GpuFinding& gpu) { return gpu.info.kind == DeviceKind::kCuda; });
}

}  // namespace

std::string GenerationText(const DeviceInfo& info) {
  if (info.kind == DeviceKind::kHip) return HipArchitecture(info);
  return fmt::format("compute capability {}.{}", info.compute_major, info.compute_minor);
}

Result<std::vector<DeviceInfo>> ListGpus() {
  if (!BuiltWithHip()) return ListCudaDevices();
  auto gpus = ListHipDevices();
  if (!BuiltWithCuda()) return gpus;
  auto nvidia = ListCudaDevices();
  if (!nvidia && !gpus) {
    nvidia.error().message += "; " + gpus.error().message;
    return nvidia;
  }
  if (!nvidia) return gpus;
  if (gpus) nvidia->insert(nvidia->end(), gpus->begin(), gpus->end());
  return nvidia;
}

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
  if (info.kind == DeviceKind::kHip) {
    object.Set("architecture", HipArchitecture(info));
    object.Set("runtime_hip_version", HipVersionText(info.runtime_version));
  } else {
    object.Set("driver_cuda_version", CudaVersionText(info.driver_version));
    object.Set("runtime_cuda_version", CudaVersionText(info.runtime_version));
  }
  return object;
}

GpuFindings ExamineGpus() {
  GpuFindings findings;
  auto devices = ListGpus();
  if (!devices) {
    findings.reason = std::move(devices).error().message;
    return findings;
  }
  for (DeviceInfo& info : *devices) {
    GpuFinding& gpu = findings.gpus.emplace_back();
    gpu.info = std::move(info);
    auto free = FreeBytesOf(gpu.info);
    if (free)
      gpu.free_bytes = *free;
    else
      gpu.problem = std::move(free).error().message;
  }
  auto library = device::CublasLtLibrary::OpenFor(
      HasNvidia(findings) ? DeviceKind::kCuda : DeviceKind::kHip, "");
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
    text += fmt::format("{:<10} {}, {}, {}, {} multiprocessors\n",
                        fmt::format("gpu {}", gpu.info.ordinal), gpu.info.name, memory,
                        GenerationText(gpu.info), gpu.info.num_multiprocessors);
    text += fmt::format("           {}\n", VersionsText(gpu.info));
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
  const bool has_nvidia = HasNvidia(findings);
  const auto library_if = [&](bool is_it) {
    return is_it ? json::Value(findings.library) : json::Value();
  };
  object.Set("cublaslt", library_if(has_nvidia));
  object.Set("hipblaslt", library_if(!has_nvidia && !findings.gpus.empty()));
}

}  // namespace sluice::cli
