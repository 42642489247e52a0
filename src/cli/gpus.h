// GPU information for `sluice doctor`, and a device as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "device/device.h"

namespace sluice::cli {

json::Value DeviceJson(const DeviceInfo& info);
// Returns "compute capability 9.0" or, for AMD GPUs, "gfx950".
std::string GenerationText(const DeviceInfo& info);

// Lists the GPUs of all vendors for which the program was built. If there are none, returns
// kUnsupported with the reason.
Result<std::vector<DeviceInfo>> ListGpus();

struct GpuFinding {
  DeviceInfo info;
  int64_t free_bytes = 0;
  std::string problem;  // why this program cannot use it; "" if it can
};

struct GpuFindings {
  std::vector<GpuFinding> gpus;
  std::string reason;  // why there are no GPUs
  // The vendor's library for large matrix products, or why it was not found; "": no GPUs.
  std::string library;
};

// Opens each GPU that the driver lists, which briefly takes about 300 MB of the GPU's memory.
GpuFindings ExamineGpus();

std::string GpuLines(const GpuFindings& findings);
// Adds "gpus" (an array), "gpus_reason" (null if there are GPUs), and two members for the library:
// "cublaslt" is set if there are NVIDIA GPUs, "hipblaslt" if there are only AMD GPUs; otherwise
// they are null.
void AddGpuFields(const GpuFindings& findings, json::Value& object);

}  // namespace sluice::cli
