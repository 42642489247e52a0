// AMD's HIP runtime, libamdhip64.so, opened at run time: the program is built without its headers
// and library, and starts without it.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "device/gpu_runtime.h"

namespace sluice {

// Error codes of the runtime that the program distinguishes.
enum HipError : int {
  kHipInitializationError = 3,
  kHipInsufficientDriver = 35,
  kHipNoDevice = 100,
  kHipNoBinaryForGpu = 209,
  kHipEccNotCorrectable = 214,
  kHipSharedObjectSymbolNotFound = 302,
  kHipSharedObjectInitFailed = 303,
  kHipOperatingSystem = 304,
  kHipIllegalAddress = 700,
  kHipLaunchTimeOut = 702,
  kHipContextIsDestroyed = 709,
  kHipAssert = 710,
  kHipLaunchFailure = 719,
  kHipNotSupported = 801,
  kHipUnknown = 999,
  kHipRuntimeOther = 1053,
};

// Numbers of hipDeviceAttribute_t, the same since HIP 6.0.
enum HipAttribute : int {
  kHipL2CacheSize = 19,
  kHipComputeMajor = 23,
  kHipMemoryBusWidth = 59,
  kHipComputeMinor = 61,
  kHipMultiprocessorCount = 63,
  kHipMaxSharedMemoryPerBlock = 74,
};

struct HipUuid {
  char bytes[16];
};

// The runtime's functions that gpu_runtime.h does not have.
struct HipLibrary {
  int (*get_device_count)(int* count) = nullptr;
  int (*get_device)(int* ordinal) = nullptr;
  int (*device_attribute)(int* value, int attribute, int ordinal) = nullptr;
  int (*device_name)(char* name, int bytes, int ordinal) = nullptr;
  int (*device_total_memory)(size_t* bytes, int ordinal) = nullptr;
  int (*device_uuid)(HipUuid* uuid, int ordinal) = nullptr;
  int (*driver_version)(int* version) = nullptr;
  int (*runtime_version)(int* version) = nullptr;
  int (*load_module)(void** module, const void* image) = nullptr;
  int (*module_function)(void** function, void* module, const char* name) = nullptr;
  int (*launch_kernel)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned threads_x, unsigned threads_y, unsigned threads_z,
                       unsigned shared_bytes, void* stream, void** arguments,
                       void** extra) = nullptr;
  GpuRuntime runtime = {};
  // Whether this is the fake library of tests/fake_hip, whose GPUs are emulated.
  bool is_stand_in = false;
};

// Opens the library at the first call: the file that SLUICE_HIP_RUNTIME names, else the usual ones.
// Later calls return the same library. kUnsupported lists the files that were tried, or names the
// missing function. Thread safe.
Result<const HipLibrary*> OpenHipLibrary();

// Whether the device is unusable for this process after this error.
bool IsFatalHipError(int code);
// kInternal, like GpuRuntime::failure. REQUIRES: the library is open.
Error HipFailure(const std::string& purpose, int code);
// kUnsupported: why there is no usable device. `code`: result of hipGetDeviceCount. REQUIRES: the
// library is open.
Error NoHipDevice(int code);

}  // namespace sluice
