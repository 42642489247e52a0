#include <fmt/format.h>

#include "base/check.h"
#include "device/device.h"
#include "device/emulated_device.h"
#include "device/gpu_counters.h"
#include "device/hip_device.h"
#include "device/integrated_gpu.h"
#ifdef SLUICE_CUDA
#include "device/cuda_device.h"
#endif

namespace sluice {

Status DeviceStream::BeginCapture() {
  return Fail(ErrorCode::kUnsupported, "this stream records no graphs");
}

Result<std::unique_ptr<DeviceGraph>> DeviceStream::EndCapture() {
  return Fail(ErrorCode::kUnsupported, "this stream records no graphs");
}

void DeviceStream::Replay(DeviceGraph& /*graph*/) {
  CHECK(false, "this stream records no graphs");
}
namespace {

constexpr int kMostEmulatedDevices = 256;

}  // namespace

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) device_->Free(data_, is_host_);
}

#ifdef SLUICE_CUDA

bool BuiltWithCuda() {
  return true;
}
Result<std::vector<DeviceInfo>> ListCudaDevices() {
  return ExamineCudaDevices();
}
bool IsIntegratedGpu(const DeviceInfo& info) {
  return info.kind == DeviceKind::kCuda && IsIntegratedCudaDevice(info.ordinal);
}

#else

bool BuiltWithCuda() {
  return false;
}
Result<std::vector<DeviceInfo>> ListCudaDevices() {
  return Fail(ErrorCode::kUnsupported,
              "this program was built without CUDA; build it with `make build-cuda`");
}
bool IsIntegratedGpu(const DeviceInfo& /*info*/) {
  return false;
}

#endif

#ifdef SLUICE_HIP

bool BuiltWithHip() {
  return true;
}
Result<std::vector<DeviceInfo>> ListHipDevices() {
  return ExamineHipDevices();
}

#else

bool BuiltWithHip() {
  return false;
}
Result<std::vector<DeviceInfo>> ListHipDevices() {
  return Fail(
      ErrorCode::kUnsupported,
      "this program was built without kernels for AMD GPUs; build it with `make build-hip`");
}

#endif

namespace {

Result<std::unique_ptr<Device>> OpenUnwatched(DeviceKind kind, int ordinal) {
  if (kind == DeviceKind::kEmulated) {
    if (ordinal < 0 || ordinal >= kMostEmulatedDevices)
      return Fail(ErrorCode::kNotFound,
                  fmt::format("there are {} emulated devices, 0 to {}; requested was {}",
                              kMostEmulatedDevices, kMostEmulatedDevices - 1, ordinal));
    EmulatedDeviceOptions options;
    options.ordinal = ordinal;
    return std::make_unique<EmulatedDevice>(options);
  }
  if (kind == DeviceKind::kHip) {
    if (!BuiltWithHip()) return tl::unexpected<Error>(ListHipDevices().error());
    return OpenHipDevice(ordinal);
  }
#ifdef SLUICE_CUDA
  return OpenCudaDevice(ordinal);
#else
  return tl::unexpected<Error>(ListCudaDevices().error());
#endif
}

}  // namespace

Result<std::unique_ptr<Device>> OpenDevice(DeviceKind kind, int ordinal) {
  Result<std::unique_ptr<Device>> device = OpenUnwatched(kind, ordinal);
  // NVML supports NVIDIA GPUs only.
  if (device && kind != DeviceKind::kHip) GpuCounters::OfProcess().Watch((*device)->info().uuid);
  return device;
}

}  // namespace sluice
