// Limits set by the control groups of this process (cgroup v1 and v2).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace sluice {

struct CgroupLimits {
  std::optional<double> cpus;                // quota / period
  std::optional<int64_t> memory_bytes;       // the lowest limit of the group and its ancestors
  std::optional<int64_t> memory_free_bytes;  // free memory of the group with the least; page cache
                                             // counts as free
};

// Reads /proc/self/cgroup and /sys/fs/cgroup below `root`. A file that cannot be read sets no
// limit.
CgroupLimits ReadCgroupLimits(const std::filesystem::path& root = "/");

}  // namespace sluice
