// For tests: the device of an engine.
#pragma once

#include "device/device_testing.h"
#include "engine/engine_config.h"

namespace sluice::testing {

// The choice of TestedKind().
inline DeviceChoice TestedChoice() {
  return TestedKind() == DeviceKind::kHip ? DeviceChoice::kHip : DeviceChoice::kEmulated;
}

}  // namespace sluice::testing
