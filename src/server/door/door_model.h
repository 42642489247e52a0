// A model of a server with several models, and how it is loaded.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "server/model_text.h"
#include "server/server_config.h"

namespace sluice {

// The result of a load.
struct LoadedModel {
  std::unique_ptr<Engine> engine;
  ModelText text;
};

// Loads one model, repeatedly. Thread safety: one call at a time, on any thread.
class ModelLoader {
 public:
  using Progress = std::function<void(int64_t done_bytes, int64_t total_bytes)>;

  virtual ~ModelLoader() = default;
  // Downloads missing files and plans. Returns the bytes of memory that the model takes once it is
  // loaded.
  virtual Result<int64_t> Plan(const Progress& downloaded) = 0;
  // Loads the model. `observer_of` is as in Engine::Hooks. REQUIRES: the last Plan() succeeded.
  virtual Result<LoadedModel> Load(std::function<EngineObserver*(int i)> observer_of,
                                   Progress loaded) = 0;
};

struct DoorModel {
  std::string name;                   // the name that requests give as `model`
  std::vector<std::string> adapters;  // names of adapters that are served with it from the start
  bool is_pinned = false;             // whether it is loaded at the start and never unloaded
  int64_t priority = 0;               // models with a higher priority are loaded first and unloaded
                                      // last
  ServerConfig config;                // used for its answers, API keys and limits
  std::unique_ptr<ModelLoader> loader;
};

struct DoorConfig {
  // Settings of the port, the logs and routes without a model. DoorServer::Create adds the API keys
  // of all models.
  ServerConfig server;
  int64_t budget_bytes = 0;   // maximum that all loaded models take together
  double wait_seconds = 600;  // maximum time that a request waits for its model
  int64_t max_waiting = 256;  // maximum number of requests that wait for one model
  double retry_seconds = 10;  // time between a failed load and the next one
};

}  // namespace sluice
