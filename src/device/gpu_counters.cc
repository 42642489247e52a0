#include "device/gpu_counters.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "base/result.h"
#include "device/vendor_library.h"

namespace sluice {
namespace {

constexpr VendorLibrary::Names kNames = {.library = "NVML, which counts the energy of GPUs,",
                                         .variable = "SLUICE_NVML",
                                         .install = "NVIDIA's driver"};
constexpr int kSuccess = 0;

std::vector<std::string> UsualFiles() {
  return {"libnvidia-ml.so.1"};
}

// nvmlMemory_t
struct NvmlMemory {
  unsigned long long total = 0, free = 0, used = 0;  // NOLINT(google-runtime-int): NVML's type
};

}  // namespace

// The functions of NVML that this program uses. NVML is initialized while the object lives.
struct GpuCounters::Library {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*handle_of)(const char* uuid, void** handle) = nullptr;
  // Energy since the driver was loaded.
  int (*millijoules)(void* handle, unsigned long long* value) = nullptr;  // NOLINT
  int (*memory)(void* handle, NvmlMemory* memory) = nullptr;

  static Result<std::unique_ptr<const Library>> Open() {
    ASSIGN_OR_RETURN(VendorLibrary file, VendorLibrary::Open(kNames, "", UsualFiles));
    auto library = std::make_unique<Library>();
    file.Resolve("nvmlInit_v2", library->init);
    file.Resolve("nvmlShutdown", library->shutdown);
    file.Resolve("nvmlDeviceGetHandleByUUID", library->handle_of);
    file.Resolve("nvmlDeviceGetTotalEnergyConsumption", library->millijoules);
    file.Resolve("nvmlDeviceGetMemoryInfo", library->memory);
    if (!file.missing().empty()) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("{}: expected NVML, found no function {}; name its file with {}",
                              file.file(), file.missing(), kNames.variable));
    }
    if (const int error = library->init(); error != kSuccess) {
      library->shutdown = nullptr;
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("{}: nvmlInit_v2 returns {}", file.file(), error));
    }
    return std::unique_ptr<const Library>(std::move(library));
  }
  Library() = default;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() {
    if (shutdown != nullptr) shutdown();
  }

  std::optional<uint64_t> MillijoulesOf(void* handle) const {
    unsigned long long value = 0;  // NOLINT(google-runtime-int)
    if (millijoules(handle, &value) != kSuccess) return std::nullopt;
    return value;
  }
};

GpuCounters::GpuCounters() = default;
GpuCounters::~GpuCounters() = default;

GpuCounters& GpuCounters::OfProcess() {
  static GpuCounters counters;
  return counters;
}

void GpuCounters::Watch(const std::string& uuid) {
  const MutexLock lock(mutex_);
  if (std::ranges::find(watched_, uuid, &Watched::uuid) == watched_.end())
    watched_.push_back({.uuid = uuid});
}

std::vector<GpuCounters::Gpu> GpuCounters::Read() {
  const MutexLock lock(mutex_);
  if (watched_.empty()) return {};
  if (!std::exchange(was_opened_, true)) {
    auto opened = Library::Open();
    if (opened) {
      library_ = *std::move(opened);
    } else {
      LOG_INFO("device", "energy and memory of GPUs are not counted: {}", opened.error().message);
    }
  }
  if (library_ == nullptr) return {};
  std::vector<Gpu> gpus;
  for (size_t i = 0; i < watched_.size(); ++i) {
    Watched& watched = watched_[i];
    if (!std::exchange(watched.was_read, true)) {
      if (library_->handle_of(watched.uuid.c_str(), &watched.handle) != kSuccess)
        watched.handle = nullptr;
      if (watched.handle != nullptr)
        watched.first_millijoules = library_->MillijoulesOf(watched.handle);
    }
    if (watched.handle == nullptr) continue;
    Gpu gpu{.number = static_cast<int>(i), .uuid = watched.uuid, .joules = {}};
    if (watched.first_millijoules) {
      // The driver's counter restarts from zero when the driver is loaded again.
      const auto now = library_->MillijoulesOf(watched.handle);
      if (now && *now >= *watched.first_millijoules)
        watched.joules = static_cast<double>(*now - *watched.first_millijoules) / 1e3;
      gpu.joules = watched.joules;
    }
    NvmlMemory memory;
    if (library_->memory(watched.handle, &memory) == kSuccess) {
      gpu.used_bytes = static_cast<int64_t>(memory.used);
      gpu.total_bytes = static_cast<int64_t>(memory.total);
    }
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

}  // namespace sluice
