// Reads --simulate and the options that go with it.
#pragma once

#include <string_view>

#include "base/result.h"
#include "engine/engine_config.h"
#include "options/settings.h"
#include "simulation/device_profile.h"

namespace sluice::cli {

// "H200x8", "my.yaml" or "my.yamlx8": a device of the table or one that a file describes.
// kInvalidArgument if there is no such device, or for a description that is invalid.
Result<DeviceCount> DevicesOf(std::string_view text);

// No simulation if --simulate is not given.
Result<SimulationConfig> SimulationOf(const options::Settings& settings);

}  // namespace sluice::cli
