// The factors of the table's devices (DeviceProfile::factors), and the data-sheet figures of the
// table's CPUs.
#pragma once

#include <string_view>
#include <vector>

#include "simulation/device_profile.h"

namespace sluice {

struct DeviceFactors {
  std::string_view name;
  // Typical relative error on measured rows of the device that were not fitted; a guess if there
  // are none.
  double error = 0;
  StepParts factors{};
  std::string_view source;
};

// Returns the factors of a device. REQUIRES: `name` is a device of the table.
const DeviceFactors& FactorsOf(std::string_view name);

// Returns the table's CPUs. Their factors are not set yet.
std::vector<DeviceProfile> CpuProfiles();

}  // namespace sluice
