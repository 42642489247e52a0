#include "device/device_pool.h"

#include <fmt/format.h>

#include "base/check.h"
#include "device/device_bytes.h"

namespace sluice {

Result<DevicePool> DevicePool::Allocate(Device& device, int64_t bytes, const char* what) {
  DevicePool pool;
  ASSIGN_OR_RETURN(pool.memory_, device.Allocate(Padded(bytes), what));
  return pool;
}

Result<void*> DevicePool::Take(int64_t bytes, const char* what) {
  CHECK_GE(bytes, 0);
  const int64_t left = size_bytes() - used_;
  if (bytes > left)
    return Fail(
        ErrorCode::kResourceExhausted,
        fmt::format("{}: {} are needed, and {} are left of the {} that were set aside on the "
                    "device",
                    what, DeviceBytesText(bytes), DeviceBytesText(left),
                    DeviceBytesText(size_bytes())));
  if (bytes == 0) return nullptr;
  void* piece = memory_.As<char>() + used_;
  used_ += Padded(bytes);
  return piece;
}

}  // namespace sluice
