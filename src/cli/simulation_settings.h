// Reads --simulate and the options that belong to it.
#pragma once

#include <string_view>

#include "base/result.h"
#include "engine/engine_config.h"
#include "options/settings.h"
#include "simulation/device_profile.h"

namespace sluice::cli {

// Parses "H200x8", "my.yaml" or "my.yamlx8": a device in the table, or one that a file describes.
// kInvalidArgument if the device is unknown, or if the device's YAML file is invalid.
Result<DeviceCount> DevicesOf(std::string_view text);

// Returns no simulation if --simulate is not given.
Result<SimulationConfig> SimulationOf(const options::Settings& settings);

}  // namespace sluice::cli
