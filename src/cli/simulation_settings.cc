#include "cli/simulation_settings.h"

#include <memory>
#include <utility>

#include <fmt/format.h>

#include "options/yaml_values.h"

namespace sluice::cli {
namespace {

// Returns the length of the name of a YAML file at the beginning of `text`; 0 if there is none.
size_t FileNameLength(std::string_view text) {
  for (const std::string_view ending : {".yaml", ".yml"}) {
    if (const size_t found = text.rfind(ending); found != std::string_view::npos && found > 0)
      return found + ending.size();
  }
  return 0;
}

Result<int> CountOf(std::string_view text, std::string_view suffix) {
  if (suffix.empty()) return 1;
  int count = 0;
  bool is_number = suffix.size() > 1 && suffix.size() < 5 && (suffix[0] == 'x' || suffix[0] == 'X');
  for (const char digit : suffix.substr(1)) {
    is_number = is_number && digit >= '0' && digit <= '9';
    if (is_number) count = 10 * count + digit - '0';
  }
  if (is_number && count >= 1 && count <= 256) return count;
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: after the file expected xN for 1 to 256 devices, found \"{}\"", text,
                          suffix),
              "simulate");
}

}  // namespace

Result<DeviceCount> DevicesOf(std::string_view text) {
  const size_t length = FileNameLength(text);
  if (length == 0) return FindDevices(text);
  const std::string file(text.substr(0, length));
  DeviceCount devices;
  ASSIGN_OR_RETURN(devices.count, CountOf(text, text.substr(length)));
  ASSIGN_OR_RETURN(const json::Value description, options::ReadYamlObject(file));
  ASSIGN_OR_RETURN(devices.device, ReadDeviceProfile(description, file));
  return devices;
}

Result<SimulationConfig> SimulationOf(const options::Settings& settings) {
  SimulationConfig simulation;
  const std::string text = settings.TextOr("simulate");
  if (text.empty()) return simulation;
  auto devices = DevicesOf(text);
  if (!devices) return tl::unexpected(std::move(devices).error().In("--simulate"));
  if (settings.TextOr("device", "auto") != "auto") {
    return Fail(ErrorCode::kInvalidArgument,
                "--simulate and --device contradict each other: nothing is computed on a device; "
                "omit --device",
                "simulate");
  }
  simulation.count = devices->count;
  simulation.device = std::make_shared<const DeviceProfile>(std::move(devices->device));
  simulation.speed = *settings.Number("simulate-speed");
  simulation.mean_output = *settings.Integer("simulate-output-len");
  return simulation;
}

}  // namespace sluice::cli
