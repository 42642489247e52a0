// GPU information for `sluice doctor`, and a device as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "device/device.h"

namespace sluice::cli {

json::Value DeviceJson(const DeviceInfo& info);

struct GpuFinding {
  DeviceInfo info;
  int64_t free_bytes = 0;
  std::string problem;  // why this program cannot use it; "" if it can
};

struct GpuFindings {
  std::vector<GpuFinding> gpus;
  std::string reason;   // why there are no GPUs
  std::string library;  // the library for large matrix products, or why it was not found
};

// Opens each GPU that the driver lists, which briefly takes about 300 MB of its memory.
GpuFindings ExamineGpus();

std::string GpuLines(const GpuFindings& findings);
// Adds "gpus" (an array), "gpus_reason" (null if there are GPUs) and "cublaslt" (null if there are
// no GPUs).
void AddGpuFields(const GpuFindings& findings, json::Value& object);

}  // namespace sluice::cli
