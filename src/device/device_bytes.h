// Formats sizes of device memory and versions of runtimes for messages.
#pragma once

#include <cstdint>
#include <string>

#include <fmt/format.h>

namespace sluice {

inline std::string DeviceBytesText(int64_t bytes) {  // "512 bytes", "1.50 MiB", "2.25 GiB"
  if (bytes < (int64_t{1} << 20)) return fmt::format("{} bytes", bytes);
  const double mib = static_cast<double>(bytes) / (1 << 20);
  return mib < 1024 ? fmt::format("{:.2f} MiB", mib) : fmt::format("{:.2f} GiB", mib / 1024);
}

// Formats the CUDA runtime's version numbers: 13000 is "13.0".
inline std::string CudaVersionText(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// Formats HIP's version numbers: 60342134 is "6.3".
inline std::string HipVersionText(int version) {
  return fmt::format("{}.{}", version / 10000000, version / 100000 % 100);
}

// The error message for an allocation that did not fit.
inline std::string OutOfDeviceMemoryText(const char* what, const std::string& device,
                                         int64_t needed, int64_t free, int64_t total) {
  return fmt::format(
      "{}: {} of device memory are needed, and of the {} of {} only {} are free; end other "
      "programs "
      "on the device, or lower --gpu-memory-utilization, --max-model-len or --max-num-seqs",
      what, DeviceBytesText(needed), DeviceBytesText(total), device, DeviceBytesText(free));
}

}  // namespace sluice
