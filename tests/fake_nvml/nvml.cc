// A fake NVML library, for tests. Its GPUs are the files in the folder SLUICE_FAKE_NVML, named by
// UUID; a file contains millijoules, used bytes and total bytes. Millijoules of -1 mean that the
// GPU does not measure energy.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

namespace {

constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
constexpr int kUninitialized = 1;

struct Memory {
  unsigned long long total, free, used;  // NOLINT(google-runtime-int)
};

int g_users = 0;
std::set<std::string> g_handles;

std::filesystem::path Folder() {
  const char* folder = std::getenv("SLUICE_FAKE_NVML");
  return folder == nullptr ? "" : folder;
}

bool Read(const void* handle, long long& energy, Memory& memory) {  // NOLINT(google-runtime-int)
  std::ifstream file(Folder() / *static_cast<const std::string*>(handle));
  return static_cast<bool>(file >> energy >> memory.used >> memory.total);
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  if (Folder().empty()) return kUninitialized;
  ++g_users;
  return kSuccess;
}

int nvmlShutdown() {
  --g_users;
  return kSuccess;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  if (g_users == 0) return kUninitialized;
  if (!std::filesystem::exists(Folder() / uuid)) return kNotFound;
  *handle = const_cast<std::string*>(&*g_handles.emplace(uuid).first);
  return kSuccess;
}

int nvmlDeviceGetTotalEnergyConsumption(void* handle,
                                        unsigned long long* value) {  // NOLINT
  long long energy = 0;                                               // NOLINT(google-runtime-int)
  Memory memory{};
  if (!Read(handle, energy, memory)) return kNotFound;
  if (energy < 0) return kNotSupported;
  *value = static_cast<unsigned long long>(energy);  // NOLINT(google-runtime-int)
  return kSuccess;
}

int nvmlDeviceGetMemoryInfo(void* handle, Memory* memory) {
  long long energy = 0;  // NOLINT(google-runtime-int)
  if (!Read(handle, energy, *memory)) return kNotFound;
  memory->free = memory->total - memory->used;
  return kSuccess;
}
}
