#include "device/hip_device.h"

#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "device/gpu_device.h"
#include "device/hip_library.h"
#include "device/hip_modules.h"

namespace sluice {
namespace {

// Each byte of HIP's identifier is a character: 16 hexadecimal digits.
std::string HipUuidText(const HipUuid& uuid) {
  return "GPU-" + std::string(uuid.bytes, sizeof(uuid.bytes));
}

}  // namespace

// HIP reports 9.4 for gfx942 and 9.5 for gfx950 as the compute capability. MI300A, MI300X and
// MI325X are the only products that report 9.4; all of them have stepping 2.
std::string HipArchitecture(const DeviceInfo& info) {
  return fmt::format("gfx{}{}{}", info.compute_major, info.compute_minor,
                     info.compute_major == 9 && info.compute_minor == 4 ? "2" : "0");
}

Result<std::vector<DeviceInfo>> ExamineHipDevices() {
  ASSIGN_OR_RETURN(const HipLibrary* const library, OpenHipLibrary());
  const auto forget = [&](int code) {
    if (code != kGpuSuccess) library->runtime.take_last_error();
    return code;
  };
  int count = 0;
  const int counted = forget(library->get_device_count(&count));
  if (counted != kGpuSuccess || count == 0) return tl::unexpected<Error>(NoHipDevice(counted));
  int driver_version = 0;
  int runtime_version = 0;
  forget(library->driver_version(&driver_version));
  forget(library->runtime_version(&runtime_version));

  std::vector<DeviceInfo> devices;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    DeviceInfo& info = devices.emplace_back();
    info.kind = DeviceKind::kHip;
    info.ordinal = ordinal;
    int code = kGpuSuccess;
    const auto attribute = [&](HipAttribute which) {
      int value = 0;
      const int failed = forget(library->device_attribute(&value, which, ordinal));
      if (code == kGpuSuccess) code = failed;
      return value;
    };
    info.compute_major = attribute(kHipComputeMajor);
    info.compute_minor = attribute(kHipComputeMinor);
    info.num_multiprocessors = attribute(kHipMultiprocessorCount);
    info.l2_bytes = attribute(kHipL2CacheSize);
    info.max_shared_bytes = attribute(kHipMaxSharedMemoryPerBlock);
    info.memory_bus_bits = attribute(kHipMemoryBusWidth);
    std::array<char, 256> name = {};
    if (code == kGpuSuccess)
      code = forget(library->device_name(name.data(), static_cast<int>(name.size() - 1), ordinal));
    size_t total_bytes = 0;
    if (code == kGpuSuccess) code = forget(library->device_total_memory(&total_bytes, ordinal));
    HipUuid uuid = {};
    if (code == kGpuSuccess) code = forget(library->device_uuid(&uuid, ordinal));
    if (code != kGpuSuccess)
      return tl::unexpected<Error>(
          HipFailure(fmt::format("examining HIP device {}", ordinal), code));
    info.name = name.data();
    info.uuid = HipUuidText(uuid);
    info.total_bytes = static_cast<int64_t>(total_bytes);
    info.driver_version = driver_version;
    info.runtime_version = runtime_version;
  }
  return devices;
}

Result<std::unique_ptr<Device>> OpenHipDevice(int ordinal) {
  ASSIGN_OR_RETURN(const std::vector<DeviceInfo> devices, ExamineHipDevices());
  if (ordinal < 0 || static_cast<size_t>(ordinal) >= devices.size())
    return Fail(ErrorCode::kNotFound,
                fmt::format("there is no HIP device {}: the driver shows {} (0 to {}); "
                            "HIP_VISIBLE_DEVICES selects among those of the machine",
                            ordinal, devices.size(), devices.size() - 1));
  const DeviceInfo& info = devices[static_cast<size_t>(ordinal)];
  ASSIGN_OR_RETURN(const HipLibrary* const library, OpenHipLibrary());
  ASSIGN_OR_RETURN(std::unique_ptr<Device> device, OpenGpuDevice(library->runtime, info));
  RETURN_IF_ERROR(LoadHipKernels(*library, ordinal, HipArchitecture(info)));
  return device;
}

}  // namespace sluice
