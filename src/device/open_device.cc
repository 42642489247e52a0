#include <fmt/format.h>

#include "device/device.h"
#include "device/emulated_device.h"
#ifdef SLUICE_CUDA
#include "device/cuda_device.h"
#endif

namespace sluice {

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

#else

bool BuiltWithCuda() {
  return false;
}
Result<std::vector<DeviceInfo>> ListCudaDevices() {
  return Fail(ErrorCode::kUnsupported,
              "this program was built without CUDA; build it with `make build-cuda`");
}

#endif

Result<std::unique_ptr<Device>> OpenDevice(DeviceKind kind, int ordinal) {
  if (kind == DeviceKind::kEmulated) {
    if (ordinal != 0)
      return Fail(ErrorCode::kNotFound,
                  fmt::format("there is one emulated device, 0; {} was asked for", ordinal));
    return std::make_unique<EmulatedDevice>();
  }
#ifdef SLUICE_CUDA
  return OpenCudaDevice(ordinal);
#else
  return tl::unexpected<Error>(ListCudaDevices().error());
#endif
}

}  // namespace sluice
