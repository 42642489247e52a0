#include "hardware/cgroup.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace sluice {
namespace {

namespace fs = std::filesystem;

// cgroup v1 writes "no limit" as a huge number.
constexpr int64_t kNoLimit = int64_t{1} << 60;

std::optional<int64_t> ReadInteger(const fs::path& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (!(file >> value)) return std::nullopt;  // also if the file contains "max"
  return value;
}

// Returns the value of `key` in a file with lines "key value".
std::optional<int64_t> ReadField(const fs::path& path, const std::string& key) {
  std::ifstream file(path);
  std::string name;
  int64_t value = 0;
  while (file >> name >> value) {
    if (name == key) return value;
  }
  return std::nullopt;
}

template <typename T>
void Lower(std::optional<T>& limit, std::optional<T> value) {
  if (value && (!limit || *value < *limit)) limit = value;
}

// Returns the folders of a group and its ancestors, including the mount point. Inside a container,
// the group's path may not exist below the mount point; then the mount point is the group itself.
std::vector<fs::path> Chain(const fs::path& mount, const std::string& group) {
  std::vector<fs::path> folders = {mount};
  fs::path folder = mount;
  for (const fs::path& part : fs::path(group).relative_path()) {
    folder /= part;
    std::error_code error;
    if (!fs::is_directory(folder, error)) break;
    folders.push_back(folder);
  }
  return folders;
}

void AddMemory(CgroupLimits& limits, std::optional<int64_t> limit, std::optional<int64_t> usage,
               std::optional<int64_t> inactive_file) {
  if (!limit || *limit >= kNoLimit) return;
  Lower(limits.memory_bytes, limit);
  if (usage) {
    const int64_t held = *usage - inactive_file.value_or(0);
    Lower(limits.memory_free_bytes, std::optional(std::max<int64_t>(0, *limit - held)));
  }
}

void AddV1Cpu(CgroupLimits& limits, const fs::path& folder) {
  const auto quota = ReadInteger(folder / "cpu.cfs_quota_us");
  const auto period = ReadInteger(folder / "cpu.cfs_period_us");
  if (quota && period && *quota > 0 && *period > 0) {
    Lower(limits.cpus, std::optional(static_cast<double>(*quota) / static_cast<double>(*period)));
  }
}

void AddV1Memory(CgroupLimits& limits, const fs::path& folder) {
  AddMemory(limits, ReadInteger(folder / "memory.limit_in_bytes"),
            ReadInteger(folder / "memory.usage_in_bytes"),
            ReadField(folder / "memory.stat", "total_inactive_file"));
}

void AddV2(CgroupLimits& limits, const fs::path& folder) {
  std::ifstream cpu(folder / "cpu.max");
  double quota = 0;
  double period = 0;
  if (cpu >> quota >> period && quota > 0 && period > 0)
    Lower(limits.cpus, std::optional(quota / period));
  AddMemory(limits, ReadInteger(folder / "memory.max"), ReadInteger(folder / "memory.current"),
            ReadField(folder / "memory.stat", "inactive_file"));
}

bool Contains(const std::string& controllers, const std::string& wanted) {
  std::stringstream stream(controllers);
  for (std::string name; std::getline(stream, name, ',');) {
    if (name == wanted) return true;
  }
  return false;
}

}  // namespace

CgroupLimits ReadCgroupLimits(const fs::path& root) {
  CgroupLimits limits;
  const fs::path mounts = root / "sys/fs/cgroup";
  std::ifstream file(root / "proc/self/cgroup");
  // Lines are "id:controllers:path"; in cgroup v2 controllers are empty.
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      for (const fs::path& folder : Chain(mounts, group)) AddV2(limits, folder);
    }
    if (Contains(controllers, "cpu")) {
      std::error_code error;
      const fs::path mount =
          fs::is_directory(mounts / "cpu", error) ? mounts / "cpu" : mounts / controllers;
      for (const fs::path& folder : Chain(mount, group)) AddV1Cpu(limits, folder);
    }
    if (Contains(controllers, "memory")) {
      for (const fs::path& folder : Chain(mounts / "memory", group)) AddV1Memory(limits, folder);
    }
  }
  return limits;
}

}  // namespace sluice
