// Searches for machines on which a model serves a trace of requests at a given service level.
// Replays the trace on simulated devices for each way to divide the model among them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine_config.h"
#include "simulation/device_profile.h"
#include "simulation/replay.h"

namespace sluice::cli {

struct DeploymentQuery {
  EngineConfig config;                  // the model's folder, and options of the engine
  std::vector<ReplayRequest> requests;  // sorted by arrival
  ServiceLevel level;
  std::vector<DeviceProfile> devices;                 // devices to try
  int most_devices = 8;                               // maximum number of devices of one kind
  std::vector<std::string> formats = {""};            // formats of weights, as in
                                                      // LoadQuantization::weights; "": as stored
  std::map<std::string, double, std::less<>> prices;  // price per hour, keyed by the device's name
};

// A deployment that reaches the service level.
struct Deployment {
  std::string device;
  int tensor_size = 1, num_stages = 1, num_engines = 1;
  std::string format;  // format of the weights: the scheme's name
  bool has_price = false;
  double price = 0;  // price per hour; if no prices are given, the number of devices
  double error = 0;  // typical relative error of the predicted times
  // Times, in seconds. ServiceLevel::share of the requests stay below these times.
  double ttft = 0, tpot = 0;
  double share = 0;  // share of the requests that meet the service level
  double output_per_second = 0;
  int64_t kv_tokens = 0;     // tokens of KV cache of all engines
  int64_t weight_bytes = 0;  // maximum bytes of weights on a device
  // Whether the deployment would still reach the service level if all times were longer by `error`.
  bool is_safe = false;

  int num_devices() const { return tensor_size * num_stages * num_engines; }
};

struct DeploymentSearch {
  // Deployments with a price come first, the cheapest first, then those without a price. Contains,
  // for each device and format, only the deployment with the fewest devices that reaches the
  // service level.
  std::vector<Deployment> found;
  // Reasons why a device and a format were left out, one line each.
  std::vector<std::string> notes;
  int num_tried = 0;
};

// Engines of a deployment receive the requests round-robin. Calls `on_try` (may be empty) before
// each replay with the number of replays. Errors: a model that cannot be read, or an empty trace.
Result<DeploymentSearch> FindDeployments(const DeploymentQuery& query,
                                         const std::function<void(int)>& on_try = {});

}  // namespace sluice::cli
