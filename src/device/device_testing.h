// Selects the device that tests use.
#pragma once

#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "device/emulated_device.h"

namespace sluice::testing {

// Returns the device kind that SLUICE_TESTED_DEVICE names. "hip" requires a program built for AMD
// GPUs, and the fake HIP runtime. Default: the emulated device.
inline DeviceKind TestedKind() {
  const char* named = std::getenv("SLUICE_TESTED_DEVICE");
  const std::string_view name = named == nullptr ? "emulated" : named;
  CHECK(name == "emulated" || name == "hip", "SLUICE_TESTED_DEVICE: expected emulated or hip");
  return name == "hip" ? DeviceKind::kHip : DeviceKind::kEmulated;
}

// Opens the tested device. `options` apply to the emulated device, which also detects writes
// outside of arrays.
inline std::unique_ptr<Device> OpenTestedDevice(const EmulatedDeviceOptions& options = {}) {
  if (TestedKind() == DeviceKind::kEmulated) return std::make_unique<EmulatedDevice>(options);
  auto device = OpenDevice(TestedKind(), options.ordinal);
  CHECK(device.has_value(), "{}", device ? "" : device.error().message);
  return *std::move(device);
}

}  // namespace sluice::testing
