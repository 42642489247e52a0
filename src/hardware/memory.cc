#include "hardware/memory.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include "hardware/cgroup.h"

namespace sluice {

MemoryLimits ReadMemoryLimits(const std::filesystem::path& root) {
  MemoryLimits limits;
  std::ifstream file(root / "proc/meminfo");
  // Lines "MemTotal:  12345 kB".
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string name;
    int64_t kilobytes = 0;
    if (!(fields >> name >> kilobytes)) continue;
    if (name == "MemTotal:") limits.total_bytes = kilobytes * 1024;
    if (name == "MemAvailable:") limits.available_bytes = kilobytes * 1024;
  }
  const CgroupLimits group = ReadCgroupLimits(root);
  if (group.memory_bytes && *group.memory_bytes < limits.total_bytes) {
    limits.total_bytes = *group.memory_bytes;
    limits.limited_by_cgroup = true;
  }
  limits.available_bytes = std::min(limits.available_bytes, limits.total_bytes);
  if (group.memory_free_bytes)
    limits.available_bytes = std::min(limits.available_bytes, *group.memory_free_bytes);
  return limits;
}

}  // namespace sluice
