// How much memory this process may use.
#pragma once

#include <cstdint>
#include <filesystem>

namespace sluice {

struct MemoryLimits {
  int64_t total_bytes = 0;  // of the machine, or of the control group where that is less
  int64_t available_bytes =
      0;  // now, without swapping: MemAvailable, or what the control group leaves
  bool limited_by_cgroup = false;  // total_bytes comes from a control group
};

// Reads /proc/meminfo and the control groups below `root`.
MemoryLimits ReadMemoryLimits(const std::filesystem::path& root = "/");

}  // namespace sluice
