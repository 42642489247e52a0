// Limits set by the control groups of this process (cgroup v1 and v2).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace sluice {

struct CgroupLimits {
  std::optional<double> cpus;                // quota / period
  std::optional<int64_t> memory_bytes;       // the tightest limit above this process
  std::optional<int64_t> memory_free_bytes;  // what is left in the group with the least left; page
                                             // cache counts as free
};

// Reads /proc/self/cgroup and /sys/fs/cgroup below `root`. Files that cannot be read set no limit.
CgroupLimits ReadCgroupLimits(const std::filesystem::path& root = "/");

}  // namespace sluice
