// Limits that the control groups of this process set (cgroup v1 and v2).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace sluice {

struct CgroupLimits {
  std::optional<double> cpus;                // quota / period
  std::optional<int64_t> memory_bytes;       // the tightest limit above this process
  std::optional<int64_t> memory_free_bytes;  // what the group with the least left has left, its
                                             // page cache counted as free
};

// Reads /proc/self/cgroup and /sys/fs/cgroup below `root`. What cannot be read sets no limit.
CgroupLimits ReadCgroupLimits(const std::filesystem::path& root = "/");

}  // namespace sluice
