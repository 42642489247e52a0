#include "hardware/memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include <fmt/format.h>

#include "hardware/cgroup.h"

namespace sluice {
namespace {

// Returns the number of kilobytes in a line "Name:  12345 kB"; -1 if there is none.
int64_t Kilobytes(const std::filesystem::path& path, const std::string& wanted) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string name;
    int64_t kilobytes = 0;
    if (fields >> name >> kilobytes && name == wanted) return kilobytes;
  }
  return -1;
}

// Returns the soft limit in a line "Max data size    1048576    unlimited    bytes" of
// proc/self/limits.
std::optional<int64_t> SoftLimit(const std::filesystem::path& root, std::string_view name) {
  std::ifstream file(root / "proc/self/limits");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    std::istringstream fields(line.substr(name.size()));
    int64_t bytes = 0;
    if (fields >> bytes) return bytes;  // fails for "unlimited"
  }
  return std::nullopt;
}

void Lower(MemoryLimits& limits, int64_t total, int64_t available, std::string_view limited_by) {
  if (total < limits.total_bytes) {
    limits.total_bytes = total;
    limits.limited_by = limited_by;
  }
  limits.available_bytes = std::min(limits.available_bytes, std::max<int64_t>(0, available));
}

// `size`: the name of the line in proc/self/status that counts towards the limit.
void LowerToLimit(MemoryLimits& limits, const std::filesystem::path& root, std::string_view line,
                  const std::string& size, std::string_view limited_by) {
  const std::optional<int64_t> limit = SoftLimit(root, line);
  if (!limit) return;
  const int64_t used = std::max<int64_t>(0, Kilobytes(root / "proc/self/status", size)) * 1024;
  Lower(limits, *limit, *limit - used, limited_by);
}

}  // namespace

std::string LimitNote(const MemoryLimits& limits) {
  return limits.limited_by.empty() ? "" : fmt::format(" (limited by its {})", limits.limited_by);
}

MemoryLimits ReadMemoryLimits(const std::filesystem::path& root) {
  MemoryLimits limits;
  limits.total_bytes = Kilobytes(root / "proc/meminfo", "MemTotal:") * 1024;
  limits.available_bytes = Kilobytes(root / "proc/meminfo", "MemAvailable:") * 1024;
  const CgroupLimits group = ReadCgroupLimits(root);
  if (group.memory_bytes) {
    Lower(limits, *group.memory_bytes, group.memory_free_bytes.value_or(*group.memory_bytes),
          "control group");
  }
  LowerToLimit(limits, root, "Max address space", "VmSize:", "RLIMIT_AS");
  LowerToLimit(limits, root, "Max data size", "VmData:", "RLIMIT_DATA");
  return limits;
}

}  // namespace sluice
