// The factors of the table's devices (DeviceProfile::factors), and the figures of its CPUs.
#pragma once

#include <string_view>
#include <vector>

#include "simulation/device_profile.h"

namespace sluice {

struct DeviceFactors {
  std::string_view name;
  double error = 0;  // typical relative error on held rows of the device; else a guess
  StepParts factors{};
  std::string_view source;
};

// REQUIRES: `name` is a device of the table.
const DeviceFactors& FactorsOf(std::string_view name);

// CPUs, without factors.
std::vector<DeviceProfile> CpuProfiles();

}  // namespace sluice
