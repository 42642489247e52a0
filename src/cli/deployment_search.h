// Searches for the machines on which a model serves a trace of requests as wanted: replays the
// trace on simulated devices, for each way to divide the model among them.
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
  std::vector<ReplayRequest> requests;  // by arrival
  ServiceLevel level;
  std::vector<DeviceProfile> devices;                 // to try
  int most_devices = 8;                               // of one kind
  std::vector<std::string> formats = {""};            // LoadQuantization::weights; "": as stored
  std::map<std::string, double, std::less<>> prices;  // per hour, by the device's name
};

// A deployment that keeps the level.
struct Deployment {
  std::string device;
  int tensor_size = 1, num_stages = 1, num_engines = 1;
  std::string format;  // of the weights: the scheme's name
  bool has_price = false;
  double price = 0;  // per hour; without a price, the number of devices
  double error = 0;  // typical relative error of its times
  // Times of which ServiceLevel::share of the requests have less, seconds.
  double ttft = 0, tpot = 0;
  double share = 0;  // of the requests that keep the level
  double output_per_second = 0;
  int64_t kv_tokens = 0;     // of all engines
  int64_t weight_bytes = 0;  // on a device, at most
  // Whether it would keep the level if all times were longer by `error`.
  bool is_safe = false;

  int num_devices() const { return tensor_size * num_stages * num_engines; }
};

struct DeploymentSearch {
  // Cheapest first: those with a price, then those without. For each device and format only the
  // smallest number of devices that keeps the level.
  std::vector<Deployment> found;
  // Why a device and format was left out, one line each.
  std::vector<std::string> notes;
  int num_tried = 0;
};

// Engines of a deployment are given the requests in turn. `on_try` (may be empty) is called with
// the number of replays before each. Errors: a model that cannot be read; an empty trace.
Result<DeploymentSearch> FindDeployments(const DeploymentQuery& query,
                                         const std::function<void(int)>& on_try = {});

}  // namespace sluice::cli
